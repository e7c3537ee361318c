"""What LoHa and LoKr make of their factors, block by block and never whole.

LoHa's difference is the elementwise product of two products, LoKr's the Kronecker product of two
matrices, each whole or a product of two factors.

Sources: Hyeon-Woo et al., FedPara (2022), for LoHa; Edalati et al., KronA (2022), for LoKr; Yeh et
al., Navigating Text-To-Image Customization (LyCORIS, 2024), sections 3.2 and 3.3.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from modelkin.core.adapters import updates
from modelkin.core.adapters.names import Algorithm
from modelkin.core.adapters.updates import Factor, Matrix, Scale, finite_magnitudes, matrix_shape

__all__ = ["HadamardUpdate", "KroneckerUpdate", "Rows"]


@dataclass(frozen=True, slots=True)
class Rows:
    """A matrix that is read row by row: a factor, or the product of two.

    Attributes:
        left: the factor itself, or the one of shape ``(height, r)``.
        right: the one of shape ``(r, width)``; None for a single factor.
    """

    left: Factor
    right: Factor | None

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        last = self.left if self.right is None else self.right
        return self.left.shape[0], matrix_shape(last.shape)[1]

    @property
    def rank(self) -> int | None:
        """r; None for a single factor."""
        return None if self.right is None else self.right.shape[0]

    def opened(self) -> _OpenRows:
        """The matrix with the factor in memory that all rows need."""
        every = slice(None)
        right = None if self.right is None else _float64(self.right.part(every, every))
        return _OpenRows(self.left, right, self.shape[1])


@dataclass(frozen=True, slots=True, eq=False)
class _OpenRows:
    """A matrix whose right factor is in memory."""

    left: Factor
    right: Matrix | None
    width: int

    def read(self, begin: int, end: int) -> Matrix:
        """What :meth:`form` needs of some rows."""
        return _float64(self.left.part(slice(begin, end), slice(None)))

    def form(self, read: Matrix, columns: slice) -> Matrix:
        """Some columns of rows that were read, float64."""
        if self.right is None:
            return read[:, columns]
        with np.errstate(over="ignore", invalid="ignore"):  # refused with the whole product
            return read @ self.right[:, columns]


@dataclass(frozen=True, slots=True)
class HadamardUpdate:
    """The difference ``scale * (w1_a @ w1_b) * (w2_a @ w2_b)`` of one tensor, elementwise: LoHa's.

    Attributes:
        name: the base's tensor that is changed.
        first: the first product; ``second`` the other one, of the same shape.
        scale: α/r.
    """

    algorithm: ClassVar[Algorithm] = "LoHa"

    name: str
    first: Rows
    second: Rows
    scale: Scale

    @property
    def shape(self) -> tuple[int, int]:
        return self.first.shape

    @property
    def dtype(self) -> str:
        return self.first.left.dtype

    def magnitudes(self) -> Iterator[npt.NDArray[np.float32]]:
        height, width = self.shape
        scale = updates.scale_of(self.scale, self.name)
        first, second = self.first.opened(), self.second.opened()
        block = max(1, updates.BLOCK_SIZE // width)
        for top in range(0, height, block):
            end = min(top + block, height)
            left, other = first.read(top, end), second.read(top, end)
            for column in range(0, width, updates.BLOCK_SIZE):
                some = slice(column, column + updates.BLOCK_SIZE)
                with np.errstate(over="ignore", invalid="ignore"):  # refused by the next line
                    product = first.form(left, some) * second.form(other, some) * scale
                yield finite_magnitudes(product, self.name)


@dataclass(frozen=True, slots=True)
class KroneckerUpdate:
    """The difference ``scale * kron(w1, w2)`` of one tensor: LoKr's.

    Attributes:
        name: the base's tensor that is changed.
        first: w1, the outer matrix; ``second`` is w2, which is repeated in its place.
        scale: α/r.
    """

    algorithm: ClassVar[Algorithm] = "LoKr"

    name: str
    first: Rows
    second: Rows
    scale: Scale

    @property
    def shape(self) -> tuple[int, int]:
        (height, width), (inner_height, inner_width) = self.first.shape, self.second.shape
        return height * inner_height, width * inner_width

    @property
    def dtype(self) -> str:
        return self.second.left.dtype

    def magnitudes(self) -> Iterator[npt.NDArray[np.float32]]:
        scale = updates.scale_of(self.scale, self.name)
        first, second = self.first.opened(), self.second.opened()
        (rows, width), (height, inner_width) = self.first.shape, self.second.shape
        most = max(1, updates.BLOCK_SIZE // (width * inner_width))
        whole = _rows_of(second, 0, height) if height <= most else None
        some = max(1, most // height)
        for row in range(0, rows, some):
            outer = _rows_of(first, row, min(row + some, rows))
            with np.errstate(over="ignore", invalid="ignore"):  # refused with the product
                outer = outer * scale
            if whole is not None:
                yield from self._blocks(outer, whole)
                continue
            for top in range(0, height, most):
                yield from self._blocks(outer, _rows_of(second, top, min(top + most, height)))

    def _blocks(self, outer: Matrix, inner: Matrix) -> Iterator[npt.NDArray[np.float32]]:
        """Yield the magnitudes of all rows of two stretches, one row in pieces if it is long."""
        columns = outer.shape[1]
        if len(outer) == len(inner) == 1:
            columns = max(1, updates.BLOCK_SIZE // inner.size)
        for at in range(0, outer.shape[1], columns):
            part = outer[:, None, at : at + columns, None]
            with np.errstate(over="ignore", invalid="ignore"):  # refused by the next line
                product = part * inner[None, :, None, :]
            yield finite_magnitudes(product, self.name)


def _rows_of(matrix: _OpenRows, begin: int, end: int) -> Matrix:
    return matrix.form(matrix.read(begin, end), slice(None))


def _float64(values: Matrix) -> Matrix:
    return np.ascontiguousarray(values, np.float64)
