"""A tensor of a checkpoint on disk, and its values, read in stretches or by part.

A file is open only while it is read, and never mapped: mapped pages would count as memory in use.
Tensors whose values are computed, such as quantised ones, are subclasses.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from io import FileIO
from pathlib import Path
from typing import Any, Final, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from modelkin.checkpoints.dtypes import BITS, decode
from modelkin.checkpoints.header import bad_checkpoint
from modelkin.core.quoting import quote

__all__ = ["STRETCH_SIZE", "Bytes", "ComputedTensor", "OpenFile", "StoredTensor"]

Bytes = npt.NDArray[np.uint8]

OpenFile: TypeAlias = Callable[[Path], FileIO]
"""Opens a file to read; another one than ``FileIO`` may first fetch what is read."""

STRETCH_SIZE: Final = 1 << 18
"""Values read at a time: few enough for the conversions to stay in the cache."""


_READ_AT_ONCE: Final = 1 << 20
_SHORT_ROW: Final = 1 << 13
"""Bytes that are read in less time than a read of its own takes: of rows that are no longer, of
which some columns are wanted, as many are read at once as :data:`_READ_AT_ONCE` has room for."""


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor in a file: ``size`` elements from byte ``begin`` on."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    path: Path
    begin: int
    open_file: OpenFile = field(default=FileIO, kw_only=True, compare=False, repr=False)

    def opened_by(self, open_file: OpenFile) -> Self:
        """This tensor, with its file opened by another function."""
        return replace(self, open_file=open_file)

    @property
    def size(self) -> int:
        """How many elements the tensor has."""
        return math.prod(self.shape)

    @property
    def itemsize(self) -> int:
        """The bytes of an element; its dtype has whole bytes."""
        return BITS[self.dtype] // 8

    @property
    def step(self) -> int:
        """Values that are best read at a time, a multiple of :data:`STRETCH_SIZE`."""
        return STRETCH_SIZE

    def stretches(self) -> Iterator[npt.NDArray[Any]]:
        """Yield the values, flat and :data:`STRETCH_SIZE` at a time, in memory that is reused.

        They have the tensor's dtype where numpy has that, else float32.

        Raises:
            InvalidCheckpoint: the file ends early.
            OSError: the file cannot be read.
        """
        buffer = np.empty(STRETCH_SIZE * self.itemsize, np.uint8)
        left = self.size * self.itemsize
        with self.open_file(self.path) as file:
            file.seek(self.begin)
            while left:
                stretch = buffer[: min(left, buffer.size)]
                self._read(file, stretch.data)
                left -= stretch.size
                yield decode(stretch, self.dtype)

    def part(self, begin: int, end: int) -> npt.NDArray[Any]:
        """The values of elements ``begin`` to ``end``, flat, in the dtype of :meth:`stretches`.

        Raises: as :meth:`stretches`.
        """
        return decode(self.raw(begin, end), self.dtype)

    def raw(self, begin: int, end: int) -> Bytes:
        """The bytes of elements ``begin`` to ``end``; raises as :meth:`stretches`."""
        width = end - begin
        return self.rectangle(width, slice(0, 1), slice(0, width), begin).reshape(-1)

    def rectangle(self, width: int, rows: slice, columns: slice, first: int = 0) -> Bytes:
        """The bytes of a rectangle of a matrix.

        Args:
            width: the columns of the matrix.
            rows: with both ends.
            columns: likewise.
            first: the element with which the matrix begins.

        Returns:
            Shape ``(rows, bytes of the columns)``.

        Raises: as :meth:`stretches`.
        """
        height, pitch = rows.stop - rows.start, width * self.itemsize
        left, right = columns.start * self.itemsize, columns.stop * self.itemsize
        raw = np.empty((height, right - left), np.uint8)
        at = self.begin + first * self.itemsize + rows.start * pitch
        with self.open_file(self.path) as file:
            if right - left == pitch or height < 2:
                file.seek(at + left)
                self._read(file, raw.reshape(-1).data)
            elif pitch > _SHORT_ROW:
                for row in range(height):
                    file.seek(at + row * pitch + left)
                    self._read(file, raw[row].data)
            else:
                file.seek(at)
                whole = np.empty((min(_READ_AT_ONCE // pitch, height), pitch), np.uint8)
                for row in range(0, height, len(whole)):
                    some = whole[: height - row]
                    self._read(file, some.reshape(-1).data)
                    raw[row : row + len(some)] = some[:, left:right]
        return raw

    def piece(self, name: str, offset: int, shape: tuple[int, ...]) -> StoredTensor:
        """Consecutive elements of this tensor, as one of another name and shape.

        Args:
            offset: the first element.
        """
        begin = self.begin + offset * self.itemsize
        return replace(self, name=name, shape=shape, begin=begin)

    def _read(self, file: FileIO, into: memoryview) -> None:
        """Fill ``into``; one read of the file may return less."""
        while into:
            got = file.readinto(into)
            if not got:
                raise bad_checkpoint(
                    self.path.name,
                    f"it ends within tensor {quote(self.name)}: it is truncated, get it again",
                )
            into = into[got:]


@dataclass(frozen=True, slots=True)
class ComputedTensor(StoredTensor):
    """A tensor whose values are computed from others; its dtype names how. They are float32."""

    @property
    def itemsize(self) -> int:
        """The bytes of an element as it is read; those in the file are fewer."""
        return BITS["F32"] // 8

    def stretches(self) -> Iterator[npt.NDArray[Any]]:
        for begin in range(0, self.size, self.step):
            values = self.part(begin, min(begin + self.step, self.size))
            for at in range(0, values.size, STRETCH_SIZE):
                yield values[at : at + STRETCH_SIZE]

    def part(self, begin: int, end: int) -> npt.NDArray[Any]:
        raise NotImplementedError

    def piece(self, name: str, offset: int, shape: tuple[int, ...]) -> StoredTensor:
        return _Piece(name, self.dtype, shape, self.path, self.begin, self, offset)


@dataclass(frozen=True, slots=True)
class _Piece(ComputedTensor):
    """Consecutive elements of a computed tensor, from ``offset`` on."""

    whole: ComputedTensor
    offset: int

    def opened_by(self, open_file: OpenFile) -> Self:
        return replace(self, whole=self.whole.opened_by(open_file))

    @property
    def step(self) -> int:
        return self.whole.step

    def part(self, begin: int, end: int) -> npt.NDArray[Any]:
        return self.whole.part(self.offset + begin, self.offset + end)
