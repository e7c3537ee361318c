"""Matrices of numbers in a file: codes, zeros and scales, decoded a rectangle at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from modelkin.checkpoints.dtypes import FLOATS
from modelkin.checkpoints.tensors import Bytes, StoredTensor

__all__ = [
    "E2M1",
    "E8M0",
    "INTEGERS",
    "NUMBERS",
    "Floats",
    "Mapped",
    "Matrix",
    "PackedColumns",
    "PackedRows",
    "Stored",
    "as_bytes",
    "counting_table",
    "unpack",
]

Floats = npt.NDArray[np.float32]

_GROUP: Final = 8
"""Codes that fill whole bytes, whatever their bits."""
_WORD: Final = 32
"""Bits of the words that codes are packed into, and codes that fill whole words."""
_PLANES: Final = {3: (2, 1), 5: (4, 1), 6: (4, 2), 7: (4, 2, 1)}
"""The bits of the planes that hold the lowest bits of codes first, of layouts in planes."""

E8M0: Final = "F8_E8M0"
INTEGERS: Final = {
    f"{kind}{8 * size}": f"<{kind.lower()}{size}" for kind in "IU" for size in (1, 2, 4, 8)
}
"""The types of integers, as numpy names them."""


class Matrix(Protocol):
    """A matrix whose numbers are read a rectangle at a time."""

    def block(self, rows: slice, columns: slice) -> Floats:
        """The numbers of a rectangle, in memory that the caller may change.

        Raises:
            InvalidCheckpoint: the file ends early.
            OSError: it cannot be read.
        """
        ...


def counting_table(bits: int, minus: int = 0, plus: int = 0) -> Floats:
    """What each code of so many bits counts, less an offset, or from another zero."""
    codes = np.arange(1 << bits)
    return (((codes + plus) & ((1 << bits) - 1)) - minus).astype(np.float32)


def _e2m1() -> Floats:
    magnitudes = [0, 0.5, 1, 1.5, 2, 3, 4, 6]
    return np.array([*magnitudes, *(-m for m in magnitudes)], np.float32)


E2M1: Final = _e2m1()
"""The values of floats of 4 bits. Source: OCP Microscaling Formats 1.0, table 5.3.3."""


@lru_cache(maxsize=1)
def _powers() -> Floats:
    """The values of E8M0: powers of two. Source: OCP Microscaling Formats 1.0, section 5.4.1."""
    powers = np.ldexp(np.float32(1), np.arange(256) - 127).astype(np.float32)
    powers[255] = np.nan
    return powers


def _integers(dtype: str) -> Callable[[Bytes], npt.NDArray[Any]]:
    return lambda raw: raw.view(dtype).astype(np.float32)


NUMBERS: Final[dict[str, Callable[[Bytes], npt.NDArray[Any]]]] = {
    **FLOATS,
    **{name: _integers(dtype) for name, dtype in INTEGERS.items()},
    E8M0: lambda raw: _powers().take(raw),
}
"""The types whose elements are numbers by themselves, and the functions that read their bytes."""


def unpack(packed: Bytes, bits: int, *, high_first: bool = False) -> Bytes:
    """The codes of rows of bytes, lowest bits first.

    Args:
        packed: shape ``(rows, bytes)``.
        bits: 1 to 8 of a code.
        high_first: whether the higher half of a byte comes first, of codes of 4 bits.

    Returns:
        Shape ``(rows, codes)``, with whole groups of 8 codes; those beyond the bytes are 0.
    """
    rows, length = packed.shape
    if bits == 8:
        return packed
    if bits == 4:
        halves = np.empty((rows, length, 2), np.uint8)
        np.bitwise_and(packed, 15, out=halves[:, :, int(high_first)])
        np.right_shift(packed, 4, out=halves[:, :, 1 - int(high_first)])
        return halves.reshape(rows, 2 * length)
    groups = -(-length // bits)
    if groups * bits != length:
        packed = np.pad(packed, ((0, 0), (0, groups * bits - length)))
    wide = np.zeros((rows, groups, 8), np.uint8)
    wide[:, :, :bits] = packed.reshape(rows, groups, bits)
    words = wide.view("<u8")[:, :, 0]
    codes = np.empty((rows, groups, _GROUP), np.uint8)
    for at in range(_GROUP):
        codes[:, :, at] = (words >> np.uint64(at * bits)) & np.uint64((1 << bits) - 1)
    return codes.reshape(rows, groups * _GROUP)


def _unpack_planes(packed: Bytes, bits: int) -> Bytes:
    """The codes of rows of words that hold 32 codes in ``bits`` words, plane by plane."""
    rows, length = packed.shape
    blocks = packed.reshape(rows, length // (4 * bits), 4 * bits)
    codes = np.zeros((rows, blocks.shape[1] * _WORD), np.uint8)
    first = shift = 0
    for width in _PLANES[bits]:
        plane = blocks[:, :, first : first + 4 * width].reshape(rows, -1)
        codes |= unpack(plane, width) << np.uint8(shift)
        first, shift = first + 4 * width, shift + width
    return codes


def as_bytes(tensor: StoredTensor) -> StoredTensor:
    """The tensor's bytes, of which each is an element."""
    size = (tensor.size * _bits_of(tensor)) // 8
    return replace(tensor, dtype="U8", shape=(size,))


def _bits_of(tensor: StoredTensor) -> int:
    return 4 if tensor.dtype == "F4" else 8 * tensor.itemsize


@dataclass(frozen=True, slots=True)
class Stored:
    """A matrix whose elements are numbers by themselves, of ``width`` columns."""

    tensor: StoredTensor
    width: int
    dtype: str | None = None

    def block(self, rows: slice, columns: slice) -> Floats:
        raw = self.tensor.rectangle(self.width, rows, columns)
        numbers = NUMBERS[self.dtype or self.tensor.dtype](raw.reshape(-1))
        shape = rows.stop - rows.start, columns.stop - columns.start
        return numbers.astype(np.float32, copy=False).reshape(shape)


@dataclass(frozen=True, slots=True)
class Mapped:
    """A matrix whose numbers are computed one by one from another's."""

    inner: Matrix
    function: Callable[[Floats], Floats]

    def block(self, rows: slice, columns: slice) -> Floats:
        return self.function(self.inner.block(rows, columns))


@dataclass(frozen=True, slots=True)
class PackedColumns:
    """Codes that are packed along the columns: a row is a number of whole bytes.

    Attributes:
        tensor: the codes.
        row_bytes: the bytes of a row.
        bits: of a code.
        table: what each code counts.
        high_first: as for :func:`unpack`.
        planes: whether 32 codes lie in planes, in 32-bit words.
        order: the places of the columns in each group of as many codes.
        turned: whether a column shall lie together in memory: codes are turned in less time than
            values.
    """

    tensor: StoredTensor
    row_bytes: int
    bits: int
    table: Floats
    high_first: bool = False
    planes: bool = False
    order: tuple[int, ...] | None = None
    turned: bool = False

    def block(self, rows: slice, columns: slice) -> Floats:
        unit = _WORD if self.planes else _GROUP
        first, last = columns.start // unit, -(-columns.stop // unit)
        size = unit * self.bits // 8
        inside = slice(first * size, min(last * size, self.row_bytes))
        raw = as_bytes(self.tensor).rectangle(self.row_bytes, rows, inside)
        if self.planes:
            codes = _unpack_planes(raw, self.bits)
        else:
            codes = unpack(raw, self.bits, high_first=self.high_first)
        if self.order is not None:
            grouped = codes.reshape(len(codes), -1, len(self.order))
            codes = grouped[:, :, self.order].reshape(codes.shape)
        codes = codes[:, columns.start - first * unit : columns.stop - first * unit]
        if not self.turned:
            return self.table.take(codes)
        return self.table.take(np.ascontiguousarray(codes.T)).T


@dataclass(frozen=True, slots=True)
class PackedRows:
    """Codes that are packed along the rows: ``bits`` words hold a group of codes of a column.

    A word is an element of the tensor, of 32 bits or of 8, and a group has a code for each bit of
    a word.
    """

    tensor: StoredTensor
    width: int
    bits: int
    table: Floats
    planes: bool = False

    def block(self, rows: slice, columns: slice) -> Floats:
        group = 8 * self.tensor.itemsize
        first, last = rows.start // group, -(-rows.stop // group)
        height = self.tensor.size // self.width
        words = slice(first * self.bits, min(last * self.bits, height))
        raw = self.tensor.rectangle(self.width, words, columns)
        turned = np.ascontiguousarray(raw.view(f"<u{self.tensor.itemsize}").T).view(np.uint8)
        codes = _unpack_planes(turned, self.bits) if self.planes else unpack(turned, self.bits)
        wanted = codes[:, rows.start - first * group : rows.stop - first * group]
        return self.table.take(wanted).T
