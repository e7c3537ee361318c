"""What any checkpoint becomes without training: rounded, pruned, noisy, and cut into shards."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from studies.lines.derivatives import Derivative
from studies.lines.networks.architecture import Architecture
from studies.lines.rounding import ROUNDED, ZEROED, each_matrix
from studies.lines.zoo import Tensors

__all__ = ["COMMON", "noisy", "rounded", "sharded", "simple"]

COMMON: Final = ("Q8_0", "Q4_0", "nf4")
"""The roundings that each architecture is measured with."""
_ROW_PARALLEL: Final = (
    "o_proj.weight",
    "down_proj.weight",
    "wo.weight",
    "down.weight",
    "out.weight",
    "out_proj.weight",
    "output.dense.weight",
    "output_dense.weight",
    "ttention.o.weight",
)
"""Ends of the names of matrices that write into the common stream."""


def simple(base: Tensors, architecture: Architecture) -> Iterator[Derivative]:
    """Roundings, zeros and shards of a base of any architecture."""
    for name in COMMON:
        yield rounded(base, name)
    for name, change in ZEROED.items():
        yield Derivative(name, each_matrix(base, change))
    for parts in (2, 4):
        for part in range(parts):
            yield sharded(base, part, parts, architecture.columns_of_units)


def rounded(base: Tensors, name: str) -> Derivative:
    """A base whose matrices are rounded by one of :data:`studies.lines.rounding.ROUNDED`."""
    return Derivative(name, each_matrix(base, ROUNDED[name]))


def noisy(base: Tensors, sigmas: float, draw: np.random.Generator) -> Derivative:
    """A base with noise of so many standard deviations of each tensor."""

    def changed(values: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        noise = np.float32(sigmas * values.std()) * draw.standard_normal(values.shape, np.float32)
        return values + noise

    return Derivative(f"noise of {sigmas} sigma", each_matrix(base, changed))


def sharded(base: Tensors, part: int, parts: int, of_columns: tuple[str, ...] = ()) -> Derivative:
    """One of the equal parts of a tensor-parallel split.

    Matrices that write into the common stream are cut along their inputs, all others along their
    outputs; those that cannot be cut evenly are whole in each part.

    Args:
        base: the whole.
        part: its number, from 0.
        parts: how many there are.
        of_columns: ends of the names of more matrices that are cut along their inputs.
    """
    tensors = Tensors()
    for name, values in base.items():
        axis = 1 if values.ndim == 2 and name.endswith(_ROW_PARALLEL + of_columns) else 0
        if values.ndim < 2 or values.shape[axis] % parts:
            tensors[name] = values
        else:
            tensors[name] = np.ascontiguousarray(np.split(values, parts, axis)[part])
    return Derivative(f"shard {part + 1} of {parts}", tensors)
