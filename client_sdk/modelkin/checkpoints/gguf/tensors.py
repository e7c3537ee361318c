"""A tensor of a GGUF file as Hugging Face's files have it: dequantised, its rows in their order.

Blocks are read where the file has them, and become numbers a stretch at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from modelkin.checkpoints.gguf.types import QuantType
from modelkin.checkpoints.tensors import (
    STRETCH_SIZE,
    Bytes,
    ComputedTensor,
    OpenFile,
    StoredTensor,
)

__all__ = ["MAX_TILE", "GgufTensor", "RowOrder"]

MAX_TILE: Final = 1 << 21
"""Values of a transposed tensor in memory at a time."""

_MAX_WASTE: Final = 2
"""Rows that are read for each row that is wanted, before each run of rows is read by itself."""


@dataclass(frozen=True, slots=True)
class RowOrder:
    """The order of a tensor's rows in GGUF, as a transposition of that in Hugging Face's files.

    Attributes:
        shape: a shape of the rows there, such as ``(heads, 2, half)``.
        axes: the order of its axes in GGUF.
    """

    shape: tuple[int, ...]
    axes: tuple[int, ...]

    def stored(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The places in GGUF of some rows."""
        places = np.unravel_index(rows, self.shape)
        shape = tuple(self.shape[axis] for axis in self.axes)
        found = np.ravel_multi_index(tuple(places[axis] for axis in self.axes), shape)
        return np.asarray(found, np.int64)


@dataclass(frozen=True, slots=True)
class GgufTensor(ComputedTensor):
    """A tensor that is read from blocks.

    Attributes:
        kind: the type of the blocks.
        blocks: their bytes, a row for each row of the tensor in the file.
        order: the order of these rows; None for that of Hugging Face's files.
        shift: what the file has added to each value.
        transposed: whether the file has its transpose.
    """

    kind: QuantType
    blocks: StoredTensor
    order: RowOrder | None = None
    shift: float = 0.0
    transposed: bool = False

    def opened_by(self, open_file: OpenFile) -> Self:
        return replace(self, blocks=self.blocks.opened_by(open_file))

    @property
    def step(self) -> int:
        return MAX_TILE if self.transposed else STRETCH_SIZE

    def part(self, begin: int, end: int) -> npt.NDArray[Any]:
        out = np.empty(end - begin, np.float32)
        for at in range(begin, end, self.step):
            until = min(at + self.step, end)
            pieces = self._columns(at, until) if self.transposed else self._rows(at, until)
            filled = at - begin
            for values in pieces:
                out[filled : filled + values.size] = values
                filled += values.size
        if self.shift:
            out -= np.float32(self.shift)
        return out

    def _rows(self, begin: int, end: int) -> Iterator[npt.NDArray[Any]]:
        """Yield the values of rows in their order, or of parts of one."""
        if self.order is None:
            yield self._flat(begin, end)
            return
        width = self.size // self.shape[0]
        first, last = begin // width, -(-end // width)
        rows = self.order.stored(np.arange(first, last))
        if width < STRETCH_SIZE:
            values = self._decode(self._gather(rows))
            yield values[begin - first * width : end - first * width]
            return
        for row, place in enumerate(rows.tolist(), first):
            left, right = max(begin, row * width), min(end, (row + 1) * width)
            moved = (place - row) * width
            yield self._flat(left + moved, right + moved)

    def _flat(self, begin: int, end: int) -> npt.NDArray[Any]:
        """The values of a stretch of the file."""
        size, length = self.kind.block_size, self.kind.block_bytes
        first, last = begin // size, -(-end // size)
        values = self._decode(self.blocks.raw(first * length, last * length))
        return values[begin - first * size : end - first * size]

    def _gather(self, rows: npt.NDArray[np.int64]) -> Bytes:
        """The bytes of some rows of the file."""
        length = self.blocks.shape[1]
        lowest, highest = int(rows.min()), int(rows.max()) + 1
        if highest - lowest <= _MAX_WASTE * rows.size:
            return self._lines(lowest, highest)[rows - lowest].reshape(-1)
        ends = np.flatnonzero(np.diff(rows) != 1) + 1
        runs = (self._lines(int(run[0]), int(run[-1]) + 1) for run in np.split(rows, ends))
        return np.concatenate([run.reshape(-1, length) for run in runs]).reshape(-1)

    def _lines(self, first: int, last: int) -> Bytes:
        length = self.blocks.shape[1]
        return self.blocks.rectangle(length, slice(first, last), slice(0, length))

    def _columns(self, begin: int, end: int) -> Iterator[npt.NDArray[Any]]:
        """Yield the values of columns of the file, which are rows of the tensor."""
        height, length = self.blocks.shape
        size, block = self.kind.block_size, self.kind.block_bytes
        wide = max(MAX_TILE // height // size, 1)
        first, last = begin // height // size, -(-end // (height * size))
        for at in range(first, last, wide):
            until = min(at + wide, last)
            raw = self.blocks.rectangle(length, slice(0, height), slice(at * block, until * block))
            tile = self._decode(raw.reshape(-1)).reshape(height, -1).T
            start = at * size * height
            yield tile.reshape(-1)[max(begin - start, 0) : end - start]

    def _decode(self, raw: Bytes) -> npt.NDArray[Any]:
        assert self.kind.values is not None  # else it is no parameter
        return self.kind.values(raw)
