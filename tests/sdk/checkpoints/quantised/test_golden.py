"""Tensors that the published packers made have the values that these packers say they stand for."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from modelkin.checkpoints import StoredTensor, open_checkpoint

GOLDEN: Final = Path(__file__).with_name("golden")
"""Small files, and what the packers that the manifest names computed from them."""
CASES: Final[dict[str, dict[str, Any]]] = json.loads((GOLDEN / "manifest.json").read_text())
EXPECTED: Final = np.load(GOLDEN / "expected.npz")


def unpacked(case: str, folder: Path) -> StoredTensor:
    """The tensor of a golden file, with its configuration beside it."""
    shutil.copy(GOLDEN / f"{case}.safetensors", folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(CASES[case]["config"]))
    (tensor,) = open_checkpoint(folder).tensors
    return tensor


@pytest.mark.parametrize("case", CASES)
def test_values(case: str, tmp_path: Path) -> None:
    """A tensor has its name and shape before quantisation, and in stretches the packer's values."""
    tensor, expected = unpacked(case, tmp_path), EXPECTED[case]
    assert (CASES[case]["tensor"], CASES[case]["dtype"], expected.shape) == (
        tensor.name,
        tensor.dtype,
        tensor.shape,
    )
    values = np.concatenate([np.array(stretch) for stretch in tensor.stretches()])
    off = np.abs(values - expected.ravel()).max()
    assert off <= CASES[case]["tolerance"] * np.abs(expected).max()


@pytest.mark.parametrize("case", CASES)
def test_parts(case: str, tmp_path: Path) -> None:
    """A part anywhere is that of the whole: within a row, over several, of single values."""
    tensor = unpacked(case, tmp_path)
    whole, draw = tensor.part(0, tensor.size), np.random.default_rng(1)
    for begin, end in np.sort(draw.integers(0, tensor.size + 1, (8, 2))).tolist():
        assert np.array_equal(whole[begin:end], tensor.part(begin, end))


@pytest.mark.parametrize("short_row", [0, 1 << 13])
def test_rectangles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, short_row: int) -> None:
    """Some columns are the same, read row by row or with what lies between them."""
    monkeypatch.setattr("modelkin.checkpoints.tensors._SHORT_ROW", short_row)
    monkeypatch.setattr("modelkin.checkpoints.tensors._READ_AT_ONCE", 1000)
    matrix = np.random.default_rng(1).integers(0, 1 << 31, (40, 36), np.uint32)
    path = tmp_path / "matrix"
    path.write_bytes(bytes(5) + matrix.tobytes())
    tensor = StoredTensor("m", "U32", matrix.shape, path, 5)
    for rows, columns in (
        ((3, 40), (5, 7)),
        ((0, 40), (0, 36)),
        ((9, 10), (1, 35)),
        ((4, 4), (2, 5)),
    ):
        found = tensor.rectangle(36, slice(*rows), slice(*columns)).view(np.uint32)
        assert np.array_equal(matrix[slice(*rows), slice(*columns)], found)
