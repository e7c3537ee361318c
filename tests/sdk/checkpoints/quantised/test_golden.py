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
