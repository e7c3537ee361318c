"""The matrices of a tensor, and their rows as they are read, a stretch at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = [
    "MIN_SIDE",
    "STRETCH",
    "Axes",
    "Matrix",
    "Part",
    "axes_of_matrices",
    "count_of_readings",
    "matrices",
    "part_of",
    "sides",
]

Floats = npt.NDArray[np.float32]

Part = Callable[[int, int], npt.NDArray[Any]]
"""A function of a first element and one past the last: the floats between, flat."""

Rows = Callable[[int, int], npt.NDArray[Any]]
"""A function of a first row and one past the last: those between."""

MIN_SIDE: Final = 64
"""The least length of a line, and of the other side: shorter ones are alike by chance."""
STRETCH: Final = 1 << 18
"""Values that are read at a time: few enough to stay in the cache, from one use to the next."""
_LEAST_ROWS: Final = 16
WHOLE: Final = 1 << 24
"""Values of kernels that are read at once: each place of a kernel is a matrix, and reading all for
each would take many times as long."""


@dataclass(frozen=True, slots=True)
class Matrix:
    """A matrix of a tensor, whose rows are read when they are asked for.

    Attributes:
        rows: how many it has.
        columns: likewise.
        read: reads some of its rows.
        stretch: the values that are read at a time, or those of 16 rows where these are more.
    """

    rows: int
    columns: int
    read: Rows
    stretch: int = STRETCH

    @classmethod
    def of(cls, values: npt.NDArray[Any]) -> Matrix:
        """A matrix in memory."""
        rows, columns = values.shape
        return cls(rows, columns, lambda begin, end: values[begin:end])

    def stretches(self) -> Iterator[tuple[int, Floats]]:
        """Yield the rows a stretch at a time, contiguous, each with the number of the first."""
        step = max(_LEAST_ROWS, self.stretch // self.columns)
        for begin in range(0, self.rows, step):
            values = self.read(begin, min(begin + step, self.rows))
            with np.errstate(over="ignore"):  # what is beyond a float32 is infinite, and refused
                floats = np.ascontiguousarray(values, np.float32)
            yield begin, floats


class Axes(NamedTuple):
    """What the axes of a tensor are for its matrices.

    Attributes:
        places: each of their places has a matrix, in the order of C.
        rows: the axis of the rows.
        columns: those that are one axis of columns, in this order.
    """

    places: tuple[int, ...]
    rows: int
    columns: tuple[int, ...]


def axes_of_matrices(shape: tuple[int, ...]) -> Axes | None:
    """The axes of a tensor's matrices; None where it has none.

    - Three axes of which the last two are sides of matrices are a stack of these, as of experts.
    - Other tensors of three axes and more are kernels: the two longest axes are a matrix for each
      place of the kernel, in whatever order the axes are stored.
    - Where the second longest is below 64, as in stems and embeddings of patches, all axes but the
      longest are one.
    """
    if len(shape) < 2 or not prod(shape):
        return None
    if _is_stack(shape):
        return Axes((0,)[: len(shape) - 2], len(shape) - 2, (len(shape) - 1,))
    longest, second, *others = sorted(range(len(shape)), key=lambda axis: -shape[axis])
    if shape[second] >= MIN_SIDE:
        across, along = sorted((longest, second))
        return Axes(tuple(sorted(others)), across, (along,))
    # The shortest first: so I x H x W and H x W x I are one order.
    rest = sorted((second, *others), key=lambda axis: (shape[axis], axis))
    return Axes((), longest, tuple(rest))


def sides(shape: tuple[int, ...]) -> tuple[int, int]:
    """The rows and the columns of each matrix of a tensor; 0 and 0 where it has none."""
    axes = axes_of_matrices(shape)
    if axes is None:
        return 0, 0
    return shape[axes.rows], prod(shape[axis] for axis in axes.columns)


def matrices(shape: tuple[int, ...], part: Part, stretch: int = STRETCH) -> Iterator[Matrix]:
    """The matrices of a tensor, see :func:`axes_of_matrices`; none with a side below 64.

    Args:
        shape: of the tensor; vectors and scalars have no lines.
        part: reads its elements in the order of C.
        stretch: as of :class:`Matrix`.
    """
    axes = axes_of_matrices(shape)
    if axes is None or min(sides(shape)) < MIN_SIDE:
        return
    readers = _of_stack(shape, part) if _is_stack(shape) else _of_kernel(shape, part, axes)
    for read in readers:
        yield Matrix(*sides(shape), read, stretch)


def count_of_readings(shape: tuple[int, ...]) -> int:
    """How many parts of a tensor, of one size and one after the other, are read by themselves.

    A stack is read a matrix at a time; of kernels all are read together; vectors are not read.
    """
    height, width = sides(shape)
    if min(height, width) < MIN_SIDE:
        return 0
    return prod(shape) // (height * width) if _is_stack(shape) else 1


def part_of(values: npt.NDArray[Any]) -> Part:
    """The elements of a tensor in memory."""
    flat = values.reshape(-1)
    return lambda begin, end: flat[begin:end]


def _is_stack(shape: tuple[int, ...]) -> bool:
    return len(shape) == 2 or (len(shape) == 3 and min(shape[1:]) >= MIN_SIDE)


def _of_stack(shape: tuple[int, ...], part: Part) -> Iterator[Rows]:
    rows, columns = shape[-2:]
    for first in range(0, prod(shape), rows * columns):

        def read(begin: int, end: int, first: int = first) -> npt.NDArray[Any]:
            values = part(first + begin * columns, first + end * columns)
            return values.reshape(end - begin, columns)

        yield read


def _of_kernel(shape: tuple[int, ...], part: Part, axes: Axes) -> Iterator[Rows]:
    if prod(shape) <= WHOLE:
        part = part_of(part(0, prod(shape)))
    order = (*axes.places, axes.rows, *axes.columns)
    for place in np.ndindex(*(shape[axis] for axis in axes.places)):

        def read(begin: int, end: int, place: tuple[int, ...] = place) -> npt.NDArray[Any]:
            slab = _slab(shape, part, axes.rows, begin, end)
            rows: npt.NDArray[Any] = slab.transpose(*order)[place].reshape(end - begin, -1)
            return rows

        yield read


def _slab(shape: tuple[int, ...], part: Part, axis: int, begin: int, end: int) -> Any:
    """The entries of a tensor from one place of an axis to another."""
    size = prod(shape[axis + 1 :])
    pitch = shape[axis] * size
    pieces = [
        part(first + begin * size, first + end * size) for first in range(0, prod(shape), pitch)
    ]
    values = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
    return values.reshape(*shape[:axis], end - begin, *shape[axis + 1 :])
