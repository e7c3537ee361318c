"""Which row of an index stands for which model, in few bytes a model.

A dict of integers takes a hundred bytes an entry, as much as two fifths of a signature. So only the
newest rows are in one; the others are in arrays in the order of their models' ids, which are made
anew, never written, whenever the dict holds a sixteenth of all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["BYTES", "OrderedRows", "RowsById"]

Ids = npt.NDArray[np.int64]

_NEWEST = 16
_FEWEST = 64
BYTES = 8 + 4 + 106 // _NEWEST + 1
"""Of a row, at most: its id, itself, and a sixteenth of what an entry of a dict takes."""


@dataclass(frozen=True, slots=True)
class OrderedRows:
    """Rows in the order of their models' ids; some may have died since.

    Attributes:
        ids: of the models, ascending, distinct, shape ``(n,)``.
        rows: int32, likewise.
        reach: every row from here on is missing.
    """

    ids: Ids
    rows: npt.NDArray[np.int32]
    reach: int

    def find(self, wanted: Ids) -> Ids:
        """The rows that stand, or stood, for one of these models."""
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
        """The rows, in no order, that stand, or stood, for one of these models."""
        found = map(self._newest.get, wanted.tolist())
        newest = np.array([row for row in found if row is not None], np.int64)
        return np.concatenate([self.ordered.find(wanted), newest])

    def append(self, first: int, model_ids: Sequence[int]) -> None:
        """The rows from ``first`` on stand for these models from now on."""
        self._newest.update(zip(model_ids, range(first, first + len(model_ids)), strict=True))

    def tidy(self, ids: Ids, alive: npt.NDArray[np.bool_]) -> None:
        """Order the rows once many are not; those that died are forgotten then.

        Args:
            ids: the model of each row.
            alive: whether the row still stands for it.
        """
        if len(self._newest) <= max(_FEWEST, ids.size // _NEWEST):
            return
        living = np.flatnonzero(alive)
        # Models come in the order of their ids, nearly: a stable sort has little to do.
        rows = living[np.argsort(ids[living], kind="stable")]
        self.ordered = OrderedRows(ids[rows], rows.astype(np.int32), ids.size)
        self._newest = {}
