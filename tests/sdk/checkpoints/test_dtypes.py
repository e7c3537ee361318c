"""Every float type of safetensors, against torch's own conversion."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from modelkin.checkpoints import importance_chunks, open_checkpoint
from modelkin.checkpoints.dtypes import BITS, FLOATS, UNREADABLE, decode
from modelkin.errors import InvalidCheckpoint
from tests.sdk.cli.files import FLOATS as TORCH
from tests.sdk.cli.files import entry, flattened, forge, random_tensors, save

PACKED = sorted(UNREADABLE)


@pytest.mark.parametrize("name", [n for n, bits in BITS.items() if n in FLOATS and bits <= 16])
def test_every_value_of_a_small_float_is_torchs(name: str) -> None:
    """All 256 or 65,536 bit patterns decode to what torch makes of them, NaN and infinity too."""
    raw = np.arange(1 << BITS[name], dtype=f"<u{BITS[name] // 8}").view(np.uint8)
    expected = torch.from_numpy(raw.copy()).view(TORCH[name]).float().numpy()
    np.testing.assert_array_equal(expected, decode(raw, name))


@pytest.mark.parametrize("name", TORCH)
def test_importance_of_weights_is_their_magnitude_in_float32(tmp_path: Path, name: str) -> None:
    """A checkpoint of any float type gives |w| as torch computes it, tensors sorted by name."""
    tensors = random_tensors(dtype=TORCH[name])
    checkpoint = open_checkpoint(save(tmp_path / "m.safetensors", tensors))
    found = np.concatenate([chunk.copy() for chunk in importance_chunks(checkpoint)()])
    assert {name: found.size} == checkpoint.dtypes
    np.testing.assert_array_equal(flattened(tensors).abs().float().numpy(), found)


@pytest.mark.parametrize("name", TORCH)
def test_importance_of_a_change_is_its_magnitude(tmp_path: Path, name: str) -> None:
    """|w - base| is taken in float32, in float64 where the checkpoint is, and then rounded."""
    tensors, before = random_tensors(1, TORCH[name]), random_tensors(2, TORCH[name])
    checkpoint = open_checkpoint(save(tmp_path / "m.safetensors", tensors))
    base = open_checkpoint(save(tmp_path / "b.safetensors", before))
    found = np.concatenate([chunk.copy() for chunk in importance_chunks(checkpoint, base)()])
    width = torch.float64 if name == "F64" else torch.float32
    change = flattened(tensors).to(width) - flattened(before).to(width)
    np.testing.assert_array_equal(change.abs().float().numpy(), found)


@pytest.mark.parametrize("dtype", PACKED)
def test_packed_types_are_refused_with_the_reason(tmp_path: Path, dtype: str) -> None:
    """Sub-byte values, scales and complex numbers are refused, and the error says why."""
    path = tmp_path / "m.safetensors"
    described = entry(dtype=dtype, shape=[192 // BITS[dtype]], data_offsets=[0, 24])
    path.write_bytes(forge({"a": described}, bytes(24)))
    with pytest.raises(InvalidCheckpoint, match=f"'a' is {dtype}, which (packs|holds)"):
        open_checkpoint(path)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("dtype", ["F64", "F32", "BF16", "F8_E5M2"])
def test_weights_that_are_not_finite_are_named(tmp_path: Path, bad: float, dtype: str) -> None:
    """A NaN or infinite weight is an error with its tensor and its place there."""
    tensors = random_tensors(dtype=TORCH[dtype])
    flat = tensors["body.weight"].float().flatten()
    flat[77] = bad
    tensors["body.weight"] = flat.to(TORCH[dtype]).reshape(32, 30)
    checkpoint = open_checkpoint(save(tmp_path / "m.safetensors", tensors))
    with pytest.raises(InvalidCheckpoint, match=r"'body.weight' has a weight .* at element 77"):
        list(importance_chunks(checkpoint)())


def test_a_float64_beyond_float32_is_named(tmp_path: Path) -> None:
    """What overflows float32 is an error, not an infinite importance."""
    path = save(tmp_path / "m.safetensors", {"w": torch.tensor([1.0, 1e300], dtype=torch.float64)})
    with pytest.raises(InvalidCheckpoint, match=r"'w' has a weight .* as float32, at element 1"):
        list(importance_chunks(open_checkpoint(path))())
