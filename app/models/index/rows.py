"""A compact map from model ids to the rows of an index.

A dict of integers takes a hundred bytes an entry, as much as two fifths of a signature. So only the
newest rows are in a dict. Older rows are in arrays, ordered by model id. Whenever the dict holds a
sixteenth of all rows, new arrays replace the old; arrays are never written in place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["BYTES_PER_ROW", "OrderedRows", "RowsById"]

Ids = npt.NDArray[np.int64]

_NEWEST_FRACTION = 16
"""The dict holds at most this fraction of all rows, as one in 16."""
_MIN_NEWEST = 64
"""Rows that the dict may hold of a small index."""
BYTES_PER_ROW = 8 + 4 + 106 // _NEWEST_FRACTION + 1
"""The most that a row takes: its id, its number, and a sixteenth of an entry of a dict."""


@dataclass(frozen=True, slots=True)
class OrderedRows:
    """Rows ordered by model id; some may be dead by now.

    Attributes:
        ids: the ids of the models, ascending, distinct, shape ``(n,)``.
        rows: the rows, int32, shape ``(n,)``.
        end: the first row that is not included; later rows are not, either.
    """

    ids: Ids
    rows: npt.NDArray[np.int32]
    end: int

    def find(self, wanted: Ids) -> Ids:
        """Return the rows, living or dead, of these models."""
        if not self.ids.size:
            return np.empty(0, np.int64)
        places = np.minimum(np.searchsorted(self.ids, wanted), self.ids.size - 1)
        found: Ids = self.rows[places[self.ids[places] == wanted]].astype(np.int64)
        return found


class RowsById:
    """The row of each model of a growing index.

    Attributes:
        ordered: all but the newest.
    """

    def __init__(self) -> None:
        self.ordered = OrderedRows(np.empty(0, np.int64), np.empty(0, np.int32), 0)
        self._newest: dict[int, int] = {}

    def find(self, wanted: Ids) -> Ids:
        """Return the rows, living or dead, of these models, in any order."""
        found = map(self._newest.get, wanted.tolist())
        newest = np.array([row for row in found if row is not None], np.int64)
        return np.concatenate([self.ordered.find(wanted), newest])

    def append(self, first: int, model_ids: Sequence[int]) -> None:
        """Assign the rows from ``first`` on to these models."""
        self._newest.update(zip(model_ids, range(first, first + len(model_ids)), strict=True))

    def consolidate(self, ids: Ids, alive: npt.NDArray[np.bool_]) -> None:
        """Move the newest rows into the ordered arrays once there are many; drop dead rows.

        Args:
            ids: the model of each row.
            alive: whether the row is the model's present one.
        """
        if len(self._newest) <= max(_MIN_NEWEST, ids.size // _NEWEST_FRACTION):
            return
        living = np.flatnonzero(alive)
        # Models arrive nearly in the order of their ids, so a stable sort has little to do.
        rows = living[np.argsort(ids[living], kind="stable")]
        self.ordered = OrderedRows(ids[rows], rows.astype(np.int32), ids.size)
        self._newest = {}

    def load(self, ids: Ids) -> None:
        """Assign the rows from 0 on to these models, which are distinct, instead of all others."""
        rows = np.arange(ids.size, dtype=np.int32)
        if np.any(ids[1:] < ids[:-1]):
            rows = np.argsort(ids, kind="stable").astype(np.int32)
            ids = ids[rows]
        self.ordered = OrderedRows(ids, rows, ids.size)
        self._newest = {}
