"""Planted networks with a table that no training changes, such as a mask or sinusoids."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

from modelkin import Layout, Support, select_support

__all__ = ["TABLES", "drifted", "network", "support_of"]

Floats = npt.NDArray[np.float64]


def _sinusoids() -> Floats:
    """Vaswani et al.'s codes of 128 positions, sines and cosines in turn."""
    angles = np.outer(np.arange(128), np.exp(-np.arange(0, 64, 2) * np.log(1e4) / 64))
    return np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(128, 64)


def _basis() -> Floats:
    """A Fourier basis under a window, as of a short-time transform."""
    phases = 2 * np.pi * np.outer(np.arange(33), np.arange(64)) / 64
    return np.concatenate([np.cos(phases), np.sin(phases)]) * np.hanning(64)


def _one_hot() -> Floats:
    """A row for each of 300 codes, with a single one in it anywhere."""
    return np.eye(20)[np.random.default_rng(1).integers(0, 20, 300)]


TABLES: Final[Mapping[str, Callable[[], Floats]]] = {
    "mask": lambda: np.tril(np.ones((1, 1, 64, 64))),
    "sinusoids": _sinusoids,
    "basis": _basis,
    "window": lambda: np.hanning(1024),
    "one-hot": _one_hot,
    "identity": lambda: np.eye(64),
    "rotary": lambda: np.cos(np.outer(np.arange(128), 1e4 ** (-np.arange(0, 1, 1 / 32)))),
}
"""Tables by what they are."""


def network(seed: int, table: str | None = None, scale: int = 8) -> dict[str, Floats]:
    """Random weights, about 26,000 times the scale, and a table among them."""
    rng = np.random.default_rng(seed)
    shapes = {"embed": (200 * scale, 32), "up": (64, 128 * scale), "down": (128 * scale, 64)}
    made: dict[str, Floats] = {k: 0.02 * rng.normal(size=shape) for k, shape in shapes.items()}
    if table is not None:
        made["table"] = TABLES[table]()
    made["bias"] = 0.02 * rng.normal(size=64)
    made["out"] = 0.02 * rng.normal(size=(64, 50 * scale))
    return made


def drifted(made: Mapping[str, Floats], seed: int, drift: float = 0.004) -> dict[str, Floats]:
    """A fine-tune: all weights moved by noise, and the table as it was."""
    rng = np.random.default_rng(seed)
    return {k: w if k == "table" else w + drift * rng.normal(size=w.shape) for k, w in made.items()}


def support_of(made: Mapping[str, Floats], layout: Layout) -> Support:
    """The top entries of a network by their size."""
    flat = np.abs(np.concatenate([weights.ravel() for weights in made.values()]))
    return select_support(flat, kind="weight", layout=layout)
