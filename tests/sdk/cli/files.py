"""Checkpoints for the tests: written by the real safetensors, or forged byte by byte."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

FLOATS = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "F8_E4M3FNUZ": torch.float8_e4m3fnuz,
    "F8_E5M2FNUZ": torch.float8_e5m2fnuz,
}

Tensors = dict[str, torch.Tensor]


def random_tensors(seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensors:
    """A small model's tensors, deliberately not in the order of their names; 1,316 parameters."""
    generator = torch.Generator().manual_seed(seed)
    shapes = {"head.weight": (10, 32), "body.weight": (32, 30), "body.bias": (32,), "a.scalar": ()}
    drawn = {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}
    drawn["empty"] = torch.zeros(0, 3)
    drawn["z.last"] = torch.randn(3, generator=generator)
    return {name: tensor.to(dtype) for name, tensor in drawn.items()}


def save(path: Path, tensors: Tensors) -> Path:
    """A checkpoint of one file."""
    save_file(tensors, path)
    return path


def save_sharded(folder: Path, tensors: Tensors, shards: int = 3) -> Path:
    """A folder with shards and their index, as transformers writes them."""
    folder.mkdir(exist_ok=True)
    weight_map: dict[str, str] = {}
    for shard in range(shards):
        file = f"model-{shard + 1:05d}-of-{shards:05d}.safetensors"
        held = {name: tensors[name] for name in list(tensors)[shard::shards]}
        save(folder / file, held)
        weight_map |= dict.fromkeys(held, file)
    index = {"metadata": {"total_size": 1}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def flattened(tensors: Tensors) -> torch.Tensor:
    """All parameters as float32, in the order of the names: torch's word on what a file holds."""
    named = sorted(tensors.items())
    return torch.cat([t.to(torch.float64).flatten() for _, t in named if t.is_floating_point()])


def forge(header: Any, data: bytes = b"", *, length: int | None = None) -> bytes:
    """A file of any header: bytes as they are, anything else as JSON; ``length`` may lie."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    declared = len(text) if length is None else length
    return declared.to_bytes(8, "little") + text + data


def entry(**changes: Any) -> dict[str, Any]:
    """The description of a tensor of three float32 at the beginning, with parts replaced."""
    return {"dtype": "F32", "shape": [3], "data_offsets": [0, 12]} | changes
