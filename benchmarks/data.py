"""Synthetic importances and supports, the same in every run.

They show how fast and how small modelkin is, never how good the method is.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from modelkin import Support, select_support

__all__ = [
    "clustered_support",
    "half_zero",
    "heavy_tailed",
    "layered",
    "one_bin",
    "uniform",
    "uniform_support",
]

Floats = npt.NDArray[np.float32]

FAN_IN = 1024
ROWS = 512


def heavy_tailed(num_parameters: int) -> Floats:
    """Squared gradients of linear layers, which are products: of the scale of the layer, of its
    output, of its input, and of the entry itself, each lognormal.

    The logarithms have a standard deviation of 2.15 together, with which a coverage of .8 takes
    9.6% of the parameters.

    Returns:
        float32, shape ``(num_parameters,)``.
    """
    return _layers(num_parameters, layer=0.5, row=1.0, column=1.0, entry=1.46)


def layered(num_parameters: int) -> Floats:
    """The same total spread, most of it between layers: what is important lies together."""
    return _layers(num_parameters, layer=1.5, row=1.0, column=0.5, entry=1.04)


def _layers(
    num_parameters: int, *, layer: float, row: float, column: float, entry: float
) -> Floats:
    rng = np.random.default_rng(7)
    importance = np.empty(num_parameters, np.float32)
    for begin in range(0, num_parameters, FAN_IN * ROWS):
        logarithm = rng.standard_normal((ROWS, FAN_IN), dtype=np.float32) * np.float32(entry)
        logarithm += rng.normal(0, column, FAN_IN).astype(np.float32)
        logarithm += rng.normal(0, row, (ROWS, 1)).astype(np.float32)
        logarithm += np.float32(rng.normal(-12, layer))
        part = importance[begin : begin + FAN_IN * ROWS]
        np.exp(logarithm.ravel()[: part.size], out=part)
    return importance


def uniform(num_parameters: int) -> Floats:
    """Even on [0, 1): most entries share a few hundred upper halves."""
    return np.random.default_rng(7).random(num_parameters, dtype=np.float32)


def half_zero(num_parameters: int) -> Floats:
    """Every other parameter has no importance, as behind dead units."""
    importance = heavy_tailed(num_parameters)
    importance[::2] = 0
    return importance


def one_bin(num_parameters: int) -> Floats:
    """All within a millionth of 1, in one bin: the worst case of a selection by digits."""
    return 1 + uniform(num_parameters) * np.float32(1e-6)


def uniform_support(num_parameters: int, density: float) -> Support:
    """K indices anywhere, all sets of K being equally likely."""
    rng = np.random.default_rng(11)
    keys = rng.random(num_parameters, dtype=np.float32)
    return select_support(keys, k=round(num_parameters * density))


def clustered_support(num_parameters: int, density: float) -> Support:
    """The most important entries of :func:`layered`."""
    return select_support(layered(num_parameters), k=round(num_parameters * density))
