"""``LowRankUpdate``: one difference (α/r) BA of an adapter, read block by block and never whole.

What the other algorithms make is in ``products``. All of them are an :class:`Update`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import isfinite, prod
from typing import Any, ClassVar, Final, Protocol

import numpy as np
import numpy.typing as npt

from modelkin.core.adapters.names import Algorithm
from modelkin.core.quoting import quote
from modelkin.errors import InvalidCheckpoint

__all__ = [
    "ArrayFactor",
    "BLOCK_SIZE",
    "Factor",
    "LowRankUpdate",
    "MAX_KEPT",
    "MAX_SCALE",
    "StoredScale",
    "Update",
    "finite_magnitudes",
    "matrix_shape",
    "scale_of",
]

BLOCK_SIZE: Final = 1 << 18
"""The entries of a difference that are formed at a time: 2 MiB of float64."""
MAX_KEPT: Final = 1 << 24
"""The most entries of the factor that is kept while a difference is read: 128 MiB of float64."""
STRIPE_SIZE: Final = 1 << 20
"""The entries that are read of the other factor at a time."""
MAX_SCALE: Final = 1e30
"""The largest alpha."""

Matrix = npt.NDArray[Any]


class Factor(Protocol):
    """A factor of a difference: a tensor whose parts are read one after the other.

    Kernels of convolutions are matrices here: see :func:`matrix_shape`.
    """

    @property
    def shape(self) -> tuple[int, ...]:
        """The tensor's shape."""

    @property
    def dtype(self) -> str:
        """The type of its elements, such as ``"BF16"``."""

    def part(self, rows: slice, columns: slice) -> Matrix:
        """Some rows and columns of the matrix, in any type of numbers."""


class Update(Protocol):
    """A difference that an adapter makes to one tensor of the base.

    Attributes:
        algorithm: what makes it of its factors.
        name: the base's tensor that is changed.
    """

    algorithm: ClassVar[Algorithm]

    @property
    def name(self) -> str: ...
    @property
    def shape(self) -> tuple[int, int]:
        """The shape of the tensor in the base, as a matrix: see :func:`matrix_shape`."""

    @property
    def dtype(self) -> str:
        """The type of a factor's elements."""

    def magnitudes(self) -> Iterator[npt.NDArray[np.float32]]:
        """Yield the magnitudes row by row, a block of entries at a time, flat.

        Products are summed in float64 and rounded once. The order in which a processor sums then
        shows in about one entry of a billion, so that a support is the same on every machine.

        Raises:
            InvalidCheckpoint: an entry is infinite or NaN, or a stored alpha is no scale.
        """


def matrix_shape(shape: tuple[int, ...]) -> tuple[int, int]:
    """The shape of a tensor as a matrix: ``(out, in)``; of a kernel ``(out, in * height * width)``.

    The entries stay in their order, so an index means the same parameter in both shapes.
    """
    return (shape[0] if shape else 1), prod(shape[1:])


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
        return self.values.reshape(matrix_shape(self.shape))[rows, columns]


@dataclass(frozen=True, slots=True)
class StoredScale:
    """α/r whose α is in the file; it is read with the factors.

    Attributes:
        alpha: a tensor of one number.
        rank: r.
    """

    alpha: Factor
    rank: int

    def value(self, name: str) -> float:
        """The scale of the difference of this name; raises InvalidCheckpoint."""
        one = slice(0, 1)
        alpha = float(self.alpha.part(one, one).reshape(-1)[0])
        if not isfinite(alpha) or not 0 < abs(alpha) <= MAX_SCALE:
            raise InvalidCheckpoint(
                f"the alpha of {quote(name)} is {alpha}: an alpha is a number other than 0; the "
                f"adapter is damaged, save it again"
            )
        return alpha / self.rank


Scale = float | StoredScale


def scale_of(scale: Scale, name: str) -> float:
    """The scale of the difference of this name; raises InvalidCheckpoint."""
    return scale.value(name) if isinstance(scale, StoredScale) else scale


@dataclass(frozen=True, slots=True)
class LowRankUpdate:
    """The difference of one tensor of the base, ``scale * B @ A``, or its transpose.

    Attributes:
        name: the base's tensor that is changed.
        a: shape ``(r, in)``, or ``(r, in, height, width)`` of a convolution.
        b: shape ``(out, r)``, or ``(out, r, 1, 1)``.
        scale: α/r or α/√r.
        transposed: the base stores ``(in, out)``.
    """

    algorithm: ClassVar[Algorithm] = "LoRA"

    name: str
    a: Factor
    b: Factor
    scale: Scale
    transposed: bool

    @property
    def rank(self) -> int:
        """r."""
        return self.a.shape[0]

    @property
    def shape(self) -> tuple[int, int]:
        out, inner = self.b.shape[0], matrix_shape(self.a.shape)[1]
        return (inner, out) if self.transposed else (out, inner)

    @property
    def dtype(self) -> str:
        return self.a.dtype

    def matrices(self) -> tuple[Matrix, Matrix]:
        """Two float64 matrices, ``(out, r)`` and ``(r, in)``, whose product is the difference.

        Raises:
            InvalidCheckpoint: a stored alpha is no scale.
        """
        return self._left(0, self.shape[0], scale_of(self.scale, self.name)), self._right()

    def magnitudes(self) -> Iterator[npt.NDArray[np.float32]]:
        height, width = self.shape
        scale, right = scale_of(self.scale, self.name), self._right()
        block = max(1, BLOCK_SIZE // width)
        stripe = max(block, STRIPE_SIZE // self.rank // block * block)
        for top in range(0, height, stripe):
            left = self._left(top, min(top + stripe, height), scale)
            for row in range(0, len(left), block):
                for column in range(0, width, BLOCK_SIZE):  # once, but for the widest tensors
                    part = right[:, column : column + BLOCK_SIZE]
                    with np.errstate(over="ignore", invalid="ignore"):  # refused by the next line
                        product = left[row : row + block] @ part
                    yield finite_magnitudes(product, self.name)

    def _right(self) -> Matrix:
        """The factor that every row needs, float64, shape ``(r, width)``."""
        every = slice(None)
        factor = self.b.part(every, every).T if self.transposed else self.a.part(every, every)
        return np.ascontiguousarray(factor, np.float64)

    def _left(self, begin: int, end: int, scale: float) -> Matrix:
        """Some rows of the other factor, scaled, float64, shape ``(end - begin, r)``."""
        some, every = slice(begin, end), slice(None)
        factor = self.a.part(every, some).T if self.transposed else self.b.part(some, every)
        with np.errstate(over="ignore", invalid="ignore"):  # refused with the product
            return np.multiply(factor, scale, dtype=np.float64, order="C")


def finite_magnitudes(values: Matrix, name: str) -> npt.NDArray[np.float32]:
    """Return |values|, which are overwritten, as float32, flat.

    Raises:
        InvalidCheckpoint: a value is infinite or NaN as float32.
    """
    with np.errstate(over="ignore", invalid="ignore"):  # infinities and NaN are refused below
        magnitudes: Matrix = np.abs(values, out=values).astype(np.float32).reshape(-1)
    if not np.isfinite(magnitudes.max()):
        raise InvalidCheckpoint(
            f"the factors of {quote(name)} give a difference that is infinite or NaN as "
            f"float32: the adapter is damaged, or its training has diverged"
        )
    return magnitudes
