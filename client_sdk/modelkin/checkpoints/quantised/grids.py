"""Grids of scales: matrices in which an element counts for a block of rows and columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from modelkin.checkpoints.header import bad_checkpoint
from modelkin.checkpoints.quantised.matrices import Floats, Matrix
from modelkin.checkpoints.tensors import StoredTensor
from modelkin.core.quoting import quote

__all__ = ["Axis", "Blocks", "Grid", "Listed", "Scaled", "Stacked"]


class Axis(Protocol):
    """How the rows of a matrix, or its columns, share those of a grid."""

    def places(self, part: slice) -> npt.NDArray[np.intp]:
        """The place in the grid of each row or column of a part."""
        ...


@dataclass(frozen=True, slots=True)
class Blocks:
    """Runs of ``size`` share one."""

    size: int

    def places(self, part: slice) -> npt.NDArray[np.intp]:
        places: npt.NDArray[np.intp] = np.arange(part.start, part.stop) // self.size
        return places


@dataclass(frozen=True, slots=True)
class Stacked:
    """Rows of a stack of matrices of ``height`` rows, in runs of ``size``, ``count`` a matrix."""

    height: int
    size: int
    count: int

    def places(self, part: slice) -> npt.NDArray[np.intp]:
        rows = np.arange(part.start, part.stop, dtype=np.intp)
        within = rows % self.height // self.size
        places: npt.NDArray[np.intp] = rows // self.height * self.count + within
        return places


@dataclass(frozen=True, slots=True)
class Listed:
    """A tensor lists the place of each, which is below ``count``."""

    tensor: StoredTensor
    count: int

    def places(self, part: slice) -> npt.NDArray[np.intp]:
        raw = self.tensor.raw(part.start, part.stop)
        places: npt.NDArray[np.intp] = raw.view("<i4").astype(np.intp)
        if not 0 <= places.min() <= places.max() < self.count:
            raise bad_checkpoint(
                self.tensor.path.name,
                f"tensor {quote(self.tensor.name)} names a group that is none of {self.count}: "
                f"get the file again",
            )
        return places


@dataclass(frozen=True, slots=True)
class Grid:
    """A grid of scales, or of zeros, over a matrix.

    Attributes:
        source: its numbers.
        rows: how the matrix's rows share its own; ``columns`` likewise.
        turned: whether a column of the matrix lies together in memory, as those of packed rows do.
    """

    source: Matrix
    rows: Axis
    columns: Axis
    turned: bool = False

    def block(self, rows: slice, columns: slice) -> Floats:
        """The numbers for a rectangle, with one row or column where all share one."""
        places = self.rows.places(rows), self.columns.places(columns)
        first = [int(each.min()) for each in places]
        spans = [slice(at, int(each.max()) + 1) for at, each in zip(first, places, strict=True)]
        found = self.source.block(*spans)
        if self.turned:
            found = np.ascontiguousarray(found.T)
        for axis in (1, 0):  # columns first, while there are few rows
            along = 1 - axis if self.turned else axis
            if found.shape[along] > 1:
                found = found.take(places[axis] - first[axis], axis=along)
        return found.T if self.turned else found


@dataclass(frozen=True, slots=True)
class Scaled:
    """``(codes - zero) * scales + shift``, a matrix of values.

    Attributes:
        codes: what is multiplied.
        scales: all of them count.
        zero: the code of 0; None where codes are signed.
        shift: is added at last.
        offset: one number that is added, too.
    """

    codes: Matrix
    scales: tuple[Grid, ...]
    zero: Grid | None = None
    shift: Grid | None = None
    offset: float = 0.0

    def block(self, rows: slice, columns: slice) -> Floats:
        values = self.codes.block(rows, columns)
        with np.errstate(over="ignore", invalid="ignore"):  # who reads refuses infinities and NaN
            if self.zero is not None:
                values -= self.zero.block(rows, columns)
            for grid in self.scales:
                values *= grid.block(rows, columns)
            if self.shift is not None:
                values += self.shift.block(rows, columns)
            if self.offset:
                values += np.float32(self.offset)
        return values
