"""``QuantisedTensor``: a tensor whose values are computed from codes and scales."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from modelkin.checkpoints.quantised.grids import Scaled
from modelkin.checkpoints.quantised.matrices import Floats, Stored, as_bytes
from modelkin.checkpoints.tensors import STRETCH_SIZE, ComputedTensor, StoredTensor

__all__ = ["MAX_TURNED_WIDTH", "QuantisedTensor", "bytes_of"]

MAX_TURNED_WIDTH: Final = 1 << 18
"""The most columns of a tensor that is stored transposed: a row of it is read at once."""
_TURNED_ROWS: Final = 256
"""Rows to compute at a time where columns are stored: their pieces are as long, and as few."""
_MAX_STRETCHES: Final = 8


@dataclass(frozen=True, slots=True)
class QuantisedTensor(ComputedTensor):
    """A tensor by its name and shape before quantisation, in the order of its values there.

    Attributes:
        width: the columns of the matrix that the tensor is here.
        values: that matrix.
        turned: whether the last two dimensions are stored in the other order.
    """

    width: int
    values: Scaled
    turned: bool = False

    @property
    def step(self) -> int:
        if not self.turned:
            return STRETCH_SIZE
        return STRETCH_SIZE * min(_MAX_STRETCHES, 1 + _TURNED_ROWS * self.width // STRETCH_SIZE)

    def part(self, begin: int, end: int) -> Floats:
        """The values of elements ``begin`` to ``end``.

        Raises:
            InvalidCheckpoint: a file ends early, or a part of the tensor is damaged.
            OSError: a file cannot be read.
        """
        whole = self._rows(begin, end) if begin < end else np.empty(0, np.float32)
        if whole.size == end - begin:
            return whole.reshape(-1)
        values, at = np.empty(end - begin, np.float32), begin
        while at < end:
            block = self._rows(at, end) if at > begin else whole
            values[at - begin : at - begin + block.size] = block.reshape(-1)
            at += block.size
        return values

    def _rows(self, begin: int, end: int) -> Floats:
        """Whole rows from ``begin`` on, or a part of one."""
        top, left = divmod(begin, self.width)
        if left or end - begin < self.width:
            rows, columns = slice(top, top + 1), slice(left, min(self.width, left + end - begin))
        else:
            rows, columns = slice(top, end // self.width), slice(0, self.width)
        if not self.turned:
            return self.values.block(rows, columns)
        height = self.shape[-2]
        at = top // height  # a stack's matrices are turned one by one
        rows = slice(rows.start - at * height, min(rows.stop - at * height, height))
        stored = slice(at * self.width + columns.start, at * self.width + columns.stop)
        return self.values.block(stored, rows).T


def bytes_of(part: StoredTensor) -> QuantisedTensor:
    """The bytes of a tensor of any type, as numbers."""
    stored = as_bytes(part)
    return QuantisedTensor(
        name=part.name,
        dtype=part.dtype,
        shape=stored.shape,
        path=part.path,
        begin=part.begin,
        width=max(stored.size, 1),
        values=Scaled(Stored(stored, max(stored.size, 1)), ()),
    )
