"""The bytes of signatures in memory: one row a model, in two halves for millions of models.

Memory is read by lines and pages ahead of the reader, so columns that are not read must lie apart
from columns that are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from app.models.index.parts import in_parts
from modelkin.core.kernels.choice import kernels

__all__ = ["ByteColumns"]

Bytes = npt.NDArray[np.uint8]
Rows = npt.NDArray[np.int64]
Counts = npt.NDArray[np.int16]

MIN_HALVED_ROWS = 1 << 21
"""Room for this many rows lies in halves: half a gigabyte at 256 values."""
_MIN_HALVED_VALUES = 64
"""The half of fewer says too little."""


@dataclass(frozen=True, slots=True)
class ByteColumns:
    """The lowest bytes of the values of each signature.

    Attributes:
        blocks: blocks of columns, in order, with the rows of the index.
    """

    blocks: tuple[Bytes, ...]

    @classmethod
    def empty(cls, rows: int, num_perm: int) -> ByteColumns:
        """Make room for ``rows`` rows; the memory is taken once it is written."""
        halved = rows >= MIN_HALVED_ROWS and num_perm >= _MIN_HALVED_VALUES
        widths = (num_perm // 2, num_perm - num_perm // 2) if halved else (num_perm,)
        return cls(tuple(np.empty((rows, width), np.uint8) for width in widths))

    @property
    def halved(self) -> bool:
        """Whether one half can be read without the other."""
        return len(self.blocks) > 1

    def first(self, count: int) -> ByteColumns:
        """The first rows, as a view."""
        return ByteColumns(tuple(block[:count] for block in self.blocks))

    def __getitem__(self, rows: int | npt.NDArray[np.generic]) -> Bytes:
        """All bytes of some rows, as a copy."""
        return np.concatenate([block[rows] for block in self.blocks], axis=-1)

    def write(self, first: int, values: npt.NDArray[Any]) -> None:
        """Write the lowest bytes of ``values``, ``(n, num_perm)``, from row ``first`` on."""
        for begin, block in self._placed_blocks():
            columns = slice(begin, begin + block.shape[1])
            block[first : first + len(values)] = values[:, columns]  # keeps the lowest bytes

    def copy(self, other: ByteColumns, kept: Rows | slice, count: int) -> None:
        """Write ``count`` rows of ``other``, halved or not, over the first ones."""
        for begin, block in self._placed_blocks():
            for start, other_block in other._placed_blocks():
                low = max(begin, start)
                high = min(begin + block.shape[1], start + other_block.shape[1])
                if low < high:
                    block[:count, low - begin : high - begin] = other_block[
                        kept, low - start : high - start
                    ]

    def counts(self, low: Bytes, *, until: int | None = None) -> Counts:
        """Count the bytes of each row that equal ``low``, in all blocks or before ``until``."""
        found = np.empty(len(self.blocks[0]), np.int16)
        return self._count(low, found, slice(until), add=False)

    def add_rest(self, low: Bytes, first: Counts, dead: Rows) -> Counts:
        """Add the other blocks' counts to those of the first block, in place; -1 for dead rows."""
        found = self._count(low, first, slice(1, None), add=True)
        found[dead] = -1
        return found

    def counts_at(self, low: Bytes, rows: Rows, *, since: int = 1) -> Counts:
        """Count the bytes of some rows that equal ``low``, in the blocks from ``since`` on."""
        count = kernels().match_counts_at
        some = list(self._placed_blocks())[since:]

        def work(part: slice) -> Counts:
            at, found = rows[part], np.zeros(part.stop - part.start, np.int16)
            for begin, block in some:
                found += count(block, low[begin : begin + block.shape[1]], at)
            return found

        return np.concatenate(in_parts(rows.size, work))

    def _count(self, low: Bytes, found: Counts, blocks: slice, *, add: bool) -> Counts:
        count = kernels().match_counts
        some = [(low[begin : begin + b.shape[1]], b) for begin, b in self._placed_blocks()][blocks]

        def work(part: slice) -> None:
            (query, block), *others = some
            if add:
                found[part] += count(block[part], query)
            else:
                count(block[part], query, found[part])
            for query, block in others:
                found[part] += count(block[part], query)

        in_parts(found.size, work)
        return found

    def _placed_blocks(self) -> Iterator[tuple[int, Bytes]]:
        begin = 0
        for block in self.blocks:
            yield begin, block
            begin += block.shape[1]
