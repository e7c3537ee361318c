"""Planted models whose tensors are trained, frozen, constant or held whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from modelkin import Layout, Support

__all__ = ["CONSTANTS", "LAYOUT", "TRAINED", "children", "strangers"]

CONSTANTS = ("stft.basis", "position")
TRAINED = ("conv1", "conv2", "norm", "head")
LAYOUT = Layout.of(
    [
        ("stft.basis", [30, 20]),
        ("conv1", [1200]),
        ("position", [200]),
        ("conv2", [40, 40]),
        ("norm", [20]),
        ("head", [400]),
    ]
)
COUNTS = {
    "stft.basis": 150,
    "conv1": 90,
    "position": 60,
    "conv2": 200,
    "norm": 20,
    "head": 30,
}
"""How many indices a support holds of each tensor; the whole ``norm``."""


def strangers(rng: np.random.Generator, count: int, constants: Sequence[str]) -> list[Support]:
    """Models that share nothing but the same indices in some tensors."""
    fixed = {name: _drawn(rng, name) for name in constants}
    return [_joined({**_all(rng), **fixed}) for _ in range(count)]


def children(rng: np.random.Generator, count: int, trained: Sequence[str]) -> list[Support]:
    """Fine-tunes of one base that share 70% of what they train, and all that is frozen."""
    base = _all(rng)
    return [
        _joined({**base, **{name: _moved(rng, base[name], name) for name in trained}})
        for _ in range(count)
    ]


def _all(rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {name: _drawn(rng, name) for name in COUNTS}


def _drawn(rng: np.random.Generator, name: str) -> np.ndarray:
    low, high = _bounds(name)
    return low + rng.choice(high - low, COUNTS[name], replace=False)


def _moved(rng: np.random.Generator, indices: np.ndarray, name: str) -> np.ndarray:
    """The indices with three of ten replaced by others of the tensor."""
    free = np.setdiff1d(np.arange(*_bounds(name)), indices, assume_unique=True)
    moved = min(free.size, round(0.3 * indices.size))
    kept = rng.choice(indices, indices.size - moved, replace=False)
    return np.concatenate([kept, rng.choice(free, moved, replace=False)])


def _bounds(name: str) -> tuple[int, int]:
    place = [tensor.name for tensor in LAYOUT.tensors].index(name)
    high = int(LAYOUT.ends[place])
    return high - LAYOUT.tensors[place].size, high


def _joined(parts: Mapping[str, np.ndarray]) -> Support:
    indices = np.sort(np.concatenate(list(parts.values())))
    return Support.from_indices(indices, LAYOUT.num_parameters)
