"""``LowRankUpdate``: one difference (α/r) BA of an adapter, read block by block and never whole."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from modelkin.errors import InvalidCheckpoint

__all__ = ["ArrayFactor", "BLOCK_SIZE", "Factor", "LowRankUpdate", "MAX_KEPT"]

BLOCK_SIZE: Final = 1 << 18
"""The entries of a difference that are formed at a time: 2 MiB of float64."""
MAX_KEPT: Final = 1 << 24
"""The most entries of the factor that is kept while a difference is read: 128 MiB of float64."""
STRIPE_SIZE: Final = 1 << 20
"""The entries that are read of the other factor at a time."""

Matrix = npt.NDArray[Any]


class Factor(Protocol):
    """A factor of a difference, A or B: a matrix whose parts are read one after the other."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows and columns."""

    @property
    def dtype(self) -> str:
        """The type of its elements, such as ``"BF16"``."""

    def part(self, rows: slice, columns: slice) -> Matrix:
        """Some rows and columns, in any type of floats."""


@dataclass(frozen=True, slots=True, eq=False)
class ArrayFactor:
    """A factor in memory, as an array of floats."""

    values: Matrix

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    @property
    def dtype(self) -> str:
        return f"F{8 * self.values.dtype.itemsize}"

    def part(self, rows: slice, columns: slice) -> Matrix:
        return self.values[rows, columns]


@dataclass(frozen=True, slots=True)
class LowRankUpdate:
    """The difference of one tensor of the base, ``scale * B @ A``, or its transpose.

    Attributes:
        name: the base's tensor that is changed.
        a: shape ``(r, in)``.
        b: shape ``(out, r)``.
        scale: α/r or α/√r.
        transposed: the base stores ``(in, out)``.
    """

    name: str
    a: Factor
    b: Factor
    scale: float
    transposed: bool

    @property
    def rank(self) -> int:
        """r."""
        return self.a.shape[0]

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of the tensor in the base."""
        out, inner = self.b.shape[0], self.a.shape[1]
        return (inner, out) if self.transposed else (out, inner)

    def magnitudes(self) -> Iterator[npt.NDArray[np.float32]]:
        """Yield |scale B A| row by row, a block of entries at a time, flat.

        Products are summed in float64 and rounded once. The order in which a processor sums then
        shows in about one entry of a billion, so that a support is the same on every machine.

        Raises:
            InvalidCheckpoint: an entry is infinite or NaN.
        """
        height, width = self.shape
        right = self._right()
        block = max(1, BLOCK_SIZE // width)
        stripe = max(block, STRIPE_SIZE // self.rank // block * block)
        for top in range(0, height, stripe):
            left = self._left(top, min(top + stripe, height))
            for row in range(0, len(left), block):
                for column in range(0, width, BLOCK_SIZE):  # once, but for the widest tensors
                    part = right[:, column : column + BLOCK_SIZE]
                    yield self._product(left[row : row + block], part)

    def _right(self) -> Matrix:
        """The factor that every row needs, float64, shape ``(r, width)``."""
        every = slice(None)
        factor = self.b.part(every, every).T if self.transposed else self.a.part(every, every)
        return np.ascontiguousarray(factor, np.float64)

    def _left(self, begin: int, end: int) -> Matrix:
        """Some rows of the other factor, scaled, float64, shape ``(end - begin, r)``."""
        some, every = slice(begin, end), slice(None)
        factor = self.a.part(every, some).T if self.transposed else self.b.part(some, every)
        with np.errstate(over="ignore", invalid="ignore"):  # refused with the product
            return np.multiply(factor, self.scale, dtype=np.float64, order="C")

    def _product(self, left: Matrix, right: Matrix) -> npt.NDArray[np.float32]:
        """Return |left @ right| as float32, flat."""
        with np.errstate(over="ignore", invalid="ignore"):  # infinities and NaN are refused below
            product = left @ right
            magnitudes: Matrix = np.abs(product, out=product).astype(np.float32).reshape(-1)
        if not np.isfinite(magnitudes.max()):
            raise InvalidCheckpoint(
                f"the factors of {self.name!a} give a difference that is infinite or NaN as "
                f"float32: the adapter is damaged, or its training has diverged"
            )
        return magnitudes
