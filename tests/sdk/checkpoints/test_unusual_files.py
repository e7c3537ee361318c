"""Files that are unusual and sound, and what is not: each is read as it is, or refused by name."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

import modelkin
from modelkin.checkpoints import open_checkpoint, select_from_checkpoint
from modelkin.errors import InvalidCheckpoint, InvalidImportance
from tests.sdk.cli.files import entry, forge

ONE = np.arange(1, 100, dtype=np.float32)
THREE = np.arange(1, 4, dtype=np.float32)
BOM = b"\xef\xbb\xbf"


def written(folder: Path, data: bytes) -> Path:
    path = folder / "model.safetensors"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("data", "weights"),
    [
        (forge({"__metadata__": {}, "a": entry()}, THREE.tobytes()), THREE),
        (forge({"__metadata__": None, "a": entry()}, THREE.tobytes()), THREE),
        (forge(json.dumps({"a": entry()}).encode() + b" " * 999, THREE.tobytes()), THREE),
        (save({"a": ONE, "u": np.ones(3, np.uint16)}), ONE),
        (save({"a": ONE, "nothing": np.zeros((0, 4), np.float32)}), ONE),
        (save({"a": ONE, "b": np.array(7, np.float32)}), np.append(ONE, np.float32(7))),
        (save({"a": ONE, "b": np.zeros(99, np.float32)}), np.append(ONE, np.zeros_like(ONE))),
        (save({"a": ONE * np.float32(1e-45)}), ONE * np.float32(1e-45)),
        (save({"a": (ONE * 6e-8).astype(np.float16)}), (ONE * 6e-8).astype(np.float16)),
    ],
    ids=["{}", "null", "padded", "U16", "zero-size", "0-d", "zeros", "denormal", "denormal F16"],
)
def test_a_sound_file_is_read(tmp_path: Path, data: bytes, weights: np.ndarray) -> None:
    """Its support is that of its floats, which numpy has."""
    expected = modelkin.select_support(np.abs(weights.astype(np.float32)), kind="weight")
    assert expected.indices.tolist() == (
        select_from_checkpoint(open_checkpoint(written(tmp_path, data))).indices.tolist()
    )


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (forge({"__metadata__": {"format": "pt"}}), "it holds no tensor of floats"),
        (save({"a": np.zeros((0, 4), np.float32)}), "no parameters: 1 tensors are empty, such"),
        (forge({"a": entry(order="C")}, bytes(12)), "'a' is not described by dtype, shape, data"),
    ],
    ids=["metadata alone", "zero-size alone", "another field"],
)
def test_a_file_without_parameters_is_refused(tmp_path: Path, data: bytes, says: str) -> None:
    """What is missing, or too much, is named."""
    with pytest.raises(InvalidCheckpoint, match=says):
        open_checkpoint(written(tmp_path, data))


def test_zeros_alone_have_no_support(tmp_path: Path) -> None:
    """A model that was never trained from zero has no entry that counts."""
    path = written(tmp_path, save({"a": np.zeros(99, np.float32)}))
    with pytest.raises(InvalidImportance, match="all 99 entries of the importance are zero"):
        select_from_checkpoint(open_checkpoint(path))


def test_an_editors_mark_is_passed_over(tmp_path: Path) -> None:
    """An index, and a configuration of quantisation, mean the same with a mark of UTF-8."""
    names = [f"model-0000{number}-of-00002.safetensors" for number in (1, 2)]
    (tmp_path / names[0]).write_bytes(save({"a": ONE}))
    (tmp_path / names[1]).write_bytes(
        save({"b.weight": np.ones((8, 8), np.int8), "b.bias": np.ones(8, np.float32)})
    )
    index = {"weight_map": {"a": names[0], "b.weight": names[1], "b.bias": names[1]}}
    (tmp_path / "model.safetensors.index.json").write_bytes(BOM + json.dumps(index).encode())
    config = {"quantization_config": {"quant_method": "of next year"}}
    (tmp_path / "config.json").write_bytes(BOM + json.dumps(config).encode())
    with pytest.raises(InvalidCheckpoint, match=r"'of next year', as config\.json says"):
        open_checkpoint(tmp_path)
