"""Small safetensors checkpoints, written with the reference library."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save

__all__ = ["SHAPES", "random_tensors", "safetensors", "sharded"]

SHAPES: dict[str, tuple[int, ...]] = {
    "decoder.weight": (40, 25),
    "encoder.weight": (50, 40),
    "encoder.bias": (50,),
}

Tensors = dict[str, npt.NDArray[Any]]


def random_tensors(seed: int, shapes: dict[str, tuple[int, ...]] = SHAPES) -> Tensors:
    """Normally distributed weights."""
    generator = np.random.default_rng(seed)
    return {name: generator.normal(size=shape).astype("f4") for name, shape in shapes.items()}


def safetensors(tensors: Tensors) -> bytes:
    """The bytes of a checkpoint."""
    return save(tensors)


def sharded(tensors: Tensors, count: int = 2) -> dict[str, bytes]:
    """The shards of a checkpoint and their index, as transformers writes them."""
    names = sorted(tensors)
    files: dict[str, bytes] = {}
    weight_map: dict[str, str] = {}
    for number in range(count):
        path = f"model-{number + 1:05}-of-{count:05}.safetensors"
        held = {name: tensors[name] for name in names[number::count]}
        files[path] = save(held)
        weight_map |= dict.fromkeys(held, path)
    index = {"metadata": {"total_size": 1}, "weight_map": weight_map}
    return {**files, "model.safetensors.index.json": json.dumps(index).encode()}
