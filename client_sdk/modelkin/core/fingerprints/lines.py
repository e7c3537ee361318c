"""Lines: the rows and the columns of a tensor's matrices, and their keys.

The *set* of a line has its t largest magnitudes. Before they are compared, each is divided by the
root mean square of its place over all lines, so that the scale of a channel decides nothing; what
gains and foldings change is undone by it. The *key* is made of the first r members that a walk
through all places meets, in an order that is fixed for all matrices. So two lines have one key
with the probability that ``chance`` computes, and neither the tensor, its name nor its orientation
enters.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from modelkin.core.kernels.choice import kernels
from modelkin.core.sketching.schemes import permutations

__all__ = [
    "MIN_SIDE",
    "Keys",
    "PlaceScales",
    "line_keys",
    "matrices",
    "members_of_key",
    "sides",
    "size_of_set",
]

Floats = npt.NDArray[np.float32]

MIN_SIDE: Final = 64
"""The least length of a line, and of the other side: shorter ones are alike by chance."""
MIN_STACKED: Final = 16
"""The least side of experts that are stacked in one tensor; kernels have a shorter one."""
_STEP: Final = 1 << 20
"""Values of columns that are copied side by side at a time."""


@dataclass(frozen=True, eq=False)
class Keys:
    """The keys of a matrix's lines of one direction.

    Attributes:
        keys: one for each line, shape ``(lines,)``.
        least: the least scaled magnitude of each set, shape ``(lines,)``; 0 for lines that have no
            set, and so no key: they are zeros, or so many magnitudes are equal that more than 2t
            entries would belong to it.
        scales: what magnitudes at each place are multiplied by, shape ``(length,)``.
    """

    keys: npt.NDArray[np.uint64]
    least: Floats
    scales: Floats

    @property
    def has(self) -> npt.NDArray[np.bool_]:
        """Which lines have a key, shape ``(lines,)``."""
        return self.least > 0


def size_of_set(length: int) -> int:
    """t, the entries of the set of a line: 2% of its length, at least 8."""
    return max(8, (length + 25) // 50)


def members_of_key(length: int) -> int:
    """r, the members of a set that make its key: so many that strangers' keys seldom meet.

    Two random lines share a key with a probability of 6e-8 at most, whatever their length.
    """
    for beyond, members in ((1024, 5), (256, 4), (128, 5), (96, 6)):
        if length >= beyond:
            return members
    return 7


def sides(shape: tuple[int, ...]) -> tuple[int, int]:
    """The rows and the columns of each matrix of a tensor; 0 and 0 where it has none."""
    if len(shape) < 2:
        return 0, 0
    if _is_stack(shape):
        return shape[-2], shape[-1]
    longest, second, *others = sorted(shape, reverse=True)
    return longest, second if second >= MIN_SIDE else second * prod(others)


def _is_stack(shape: tuple[int, ...]) -> bool:
    return len(shape) == 2 or (len(shape) == 3 and min(shape) >= MIN_STACKED)


def matrices(values: npt.NDArray[Any]) -> Iterator[npt.NDArray[Any]]:
    """The matrices of a tensor; none with a side below 64. They are views where that is possible.

    - Three axes of at least 16 are a stack of matrices, such as experts.
    - Other tensors of three axes and more are kernels: the two longest axes are a matrix for each
      place of the kernel, in whatever order the axes are stored.
    - Where the second longest is below 64, as in stems and embeddings of patches, all axes but the
      longest are one.

    Args:
        values: of any shape; vectors and scalars have no lines.
    """
    if min(sides(values.shape)) < MIN_SIDE:
        return
    if _is_stack(values.shape):
        yield from values.reshape(-1, *values.shape[-2:])
    else:
        yield from _of_kernel(values)


def _of_kernel(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    longest_first = sorted(range(values.ndim), key=lambda axis: -values.shape[axis])
    first, second, *others = longest_first
    if values.shape[second] >= MIN_SIDE:
        moved = values.transpose(*sorted(others), first, second)
        return moved.reshape(-1, *sides(values.shape))
    # The shortest first: so I x H x W and H x W x I are one order.
    rest = sorted((second, *others), key=lambda axis: (values.shape[axis], axis))
    return values.transpose(first, *rest).reshape(1, *sides(values.shape))


class PlaceScales:
    """The reciprocal root mean square of each place, of the rows and of the columns of a matrix.

    The sums are exact, so they do not depend on the order of the rows, on the stretches that are
    added, or on the machine.

    Args:
        rows: the rows of the matrix.
        columns: its columns.
    """

    def __init__(self, rows: int, columns: int) -> None:
        self._of_rows = np.zeros((17, rows), np.uint64)
        self._of_columns = np.zeros((17, columns), np.uint64)

    def add(self, begin: int, values: Floats) -> None:
        """Take the rows from one on; each is taken once.

        Args:
            begin: the first of them.
            values: finite, shape ``(m, columns)``.
        """
        sums = np.zeros((17, len(values)), np.uint64)
        kernels().add_squares(values, self._of_columns, sums)
        self._of_rows[:, begin : begin + len(values)] = sums

    @property
    def of_rows(self) -> Floats:
        """The scale of each place of a row: one for each column, shape ``(columns,)``."""
        return _reciprocal_rms(self._of_columns, self._of_rows.shape[1])

    @property
    def of_columns(self) -> Floats:
        """The scale of each place of a column: one for each row, shape ``(rows,)``."""
        return _reciprocal_rms(self._of_rows, self._of_columns.shape[1])


def _reciprocal_rms(sums: npt.NDArray[np.uint64], count: int) -> Floats:
    total = np.zeros(sums.shape[1])
    for window in range(len(sums) - 1, -1, -1):  # one order, so one rounding
        total += np.ldexp(sums[window].astype(np.float64), 32 * window)
    rms = np.ldexp(np.sqrt(total / count), -138)
    scales = np.zeros(len(rms))
    np.divide(1, rms, out=scales, where=rms > 0)
    return np.minimum(scales, np.finfo(np.float32).max).astype(np.float32)


def line_keys(matrix: Floats) -> tuple[Keys, Keys]:
    """The keys of a matrix's rows, and those of its columns.

    Args:
        matrix: finite, shape ``(rows, columns)``, no side below 64.
    """
    rows, columns = matrix.shape
    scales = PlaceScales(rows, columns)
    scales.add(0, matrix)
    of_rows = _keys(matrix, scales.of_rows)
    places, step = scales.of_columns, max(16, _STEP // rows)
    parts = [
        _keys(kernels().transposed(matrix, at, min(at + step, columns)), places)
        for at in range(0, columns, step)
    ]
    of_columns = Keys(
        np.concatenate([part.keys for part in parts]),
        np.concatenate([part.least for part in parts]),
        places,
    )
    return of_rows, of_columns


def _keys(lines: Floats, scales: Floats) -> Keys:
    length = lines.shape[1]
    size, members = size_of_set(length), members_of_key(length)
    keys, least = kernels().line_keys(lines, scales, _walk(length), size, members)
    return Keys(keys, least, scales)


@lru_cache(maxsize=8)
def _walk(length: int) -> npt.NDArray[np.uint32]:
    """The rank of each place in the walk: ``affine32`` of it, by the permutation of seed 1."""
    a, b = permutations("affine32", 1, 1)
    return np.asarray(kernels().hashes(np.arange(length, dtype=np.uint32), a, b))
