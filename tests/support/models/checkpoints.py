"""Small safetensors checkpoints, written with the reference library."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save

from modelkin import Support, select_support

__all__ = [
    "SHAPES",
    "Tensors",
    "delta_support",
    "flat",
    "random_tensors",
    "safetensors",
    "sharded",
    "sister_of",
    "weight_support",
    "weights_digest_of",
]

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


def flat(tensors: Tensors) -> npt.NDArray[Any]:
    """All parameters in the order of the tensors' names."""
    return np.concatenate([tensors[name].ravel() for name in sorted(tensors)])


def weight_support(tensors: Tensors) -> Support:
    """The largest 5% of the weights."""
    return select_support(np.abs(flat(tensors)), fraction=0.05)


def delta_support(tensors: Tensors, base: Tensors) -> Support:
    """The largest 5% of the differences from a base."""
    return select_support(np.abs(flat(tensors) - flat(base)), fraction=0.05)


def weights_digest_of(tensors: Tensors) -> str:
    """The digest of a base's weights, by its definition."""
    digests = [
        hashlib.sha256(
            json.dumps([name, list(tensors[name].shape)]).encode()
            + b"\n"
            + tensors[name].astype("<f4").tobytes()
        ).digest()
        for name in sorted(tensors)
    ]
    return f"sha256:{hashlib.sha256(b''.join(digests)).hexdigest()}"


def sister_of(space: str, base: str) -> str:
    """The name of the space of differences from a base, by the base's name."""
    name = base.replace("/", "-")
    return f"{name}-delta" if name.startswith(f"{space}-") else f"{space}-{name}-delta"


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
