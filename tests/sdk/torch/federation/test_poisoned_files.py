"""Learngenes from strangers: nothing of a damaged or poisoned file reaches a model."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save, save_file
from torch import Tensor, nn

from modelkin.errors import InvalidInput, InvalidLearngene, LearngeneMismatch
from modelkin.torch import inherit

SOUND = {"0.weight": torch.ones(2, 3), "0.bias": torch.zeros(2)}


def network() -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2))


def forged(header: Any, data: bytes = b"") -> bytes:
    """A file of any header: bytes as they are, anything else as JSON."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def entry(begin: int, end: int, **changes: Any) -> dict[str, Any]:
    return {"dtype": "F32", "shape": [(end - begin) // 4], "data_offsets": [begin, end]} | changes


def with_value(value: float, dtype: torch.dtype = torch.float32) -> bytes:
    weight = torch.ones(2, 3, dtype=dtype)
    weight[1, 2] = value
    return save({**SOUND, "0.weight": weight})


class Payload:
    """A pickle that would run code."""

    def __reduce__(self) -> Any:
        return exec, ("raise SystemExit('executed')",)


CASES = {
    "empty": b"",
    "a pickle": pickle.dumps(Payload()),
    "a header longer than the file": (1 << 40).to_bytes(8, "little") + b"{}",
    "no JSON": forged(b"{nonsense"),
    "cut short": save(SOUND)[:-1],
    "more bytes": save(SOUND) + b"\0",
    "a hole": forged({"0.bias": entry(0, 8), "0.weight": entry(12, 36, shape=[2, 3])}, b"\0" * 36),
    "an overlap": forged(
        {"0.bias": entry(0, 8), "0.weight": entry(4, 28, shape=[2, 3])}, b"\0" * 28
    ),
    "a shape that lies": forged({"0.bias": entry(0, 8, shape=[1 << 40])}, b"\0" * 8),
    "an unknown dtype": forged({"0.bias": entry(0, 8, dtype="Z80")}, b"\0" * 8),
    "integers": save({**SOUND, "0.bias": torch.zeros(2, dtype=torch.int64)}),
    "booleans": save({**SOUND, "0.bias": torch.zeros(2, dtype=torch.bool)}),
    "complex numbers": save({**SOUND, "0.bias": torch.zeros(2, dtype=torch.complex64)}),
    "scales": forged({"0.bias": entry(0, 2, dtype="F8_E8M0", shape=[2])}, b"\0" * 2),
    "NaN": with_value(float("nan")),
    "infinity": with_value(float("inf")),
    "infinity in half precision": with_value(float("-inf"), torch.bfloat16),
    "NaN in 8 bits": with_value(float("nan"), torch.float8_e4m3fn),
}


@pytest.mark.parametrize("content", CASES.values(), ids=CASES.keys())
def test_a_poisoned_file_changes_nothing(tmp_path: Path, content: bytes) -> None:
    """It is refused by its name before the first value is written."""
    path = tmp_path / "gene.safetensors"
    path.write_bytes(content)
    model = network()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(InvalidLearngene, match=r"^gene\.safetensors: "):
        inherit(model, path)
    unchanged(before, model)


def test_a_value_beyond_the_model_s_dtype(tmp_path: Path) -> None:
    """Finite in the file, infinite in the model: refused."""
    path = tmp_path / "gene.safetensors"
    path.write_bytes(with_value(1e300, torch.float64))
    model = network()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(LearngeneMismatch, match=r"beyond torch\.float32"):
        inherit(model, path)
    unchanged(before, model)


@pytest.mark.slow
@given(st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=4))
@settings(max_examples=200)
def test_changed_bytes(tmp_path: Path, changes: list[tuple[int, int]]) -> None:
    """A file with some bytes replaced is refused, or all that is loaded is finite."""
    content = bytearray(save(SOUND))
    for at, value in changes:
        content[at % len(content)] = value
    path = tmp_path / "gene.safetensors"
    path.write_bytes(content)
    model = network()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    try:
        inherit(model, path)
    except (InvalidInput, LearngeneMismatch):
        unchanged(before, model)
    assert all(bool(torch.isfinite(tensor).all()) for tensor in model.state_dict().values())


def test_a_digest_comes_before_all_else(tmp_path: Path) -> None:
    """Bytes that the manifest does not name are not even read as safetensors."""
    path = tmp_path / "gene.safetensors"
    path.write_bytes(pickle.dumps(Payload()))
    with pytest.raises(LearngeneMismatch, match="has the digest"):
        inherit(network(), path, digest="sha256:" + "0" * 64)


def test_a_long_name_stays_short_in_the_error(tmp_path: Path) -> None:
    """Names come from strangers."""
    path = tmp_path / "gene.safetensors"
    save_file({"x" * 900: torch.from_numpy(np.ones(2, np.float32))}, path)
    with pytest.raises(LearngeneMismatch) as caught:
        inherit(network(), path)
    assert len(str(caught.value)) < 300


def unchanged(before: dict[str, Tensor], model: nn.Module) -> None:
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
