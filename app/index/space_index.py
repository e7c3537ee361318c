"""The signatures of one space, cut to a byte a value: the array that a query scans.

Rows are only ever appended, so a query works on a snapshot without a lock while writers go on. The
array is derived data: it follows the version of its space and is rebuilt from the database when the
process starts. It only proposes candidates and never says how similar anything is.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from app.index.rows import BYTES, OrderedRows, RowsById
from modelkin.core.kernels.choice import kernels
from modelkin.core.similarity.top_k import best
from modelkin.core.sketching.signature import value_dtype
from modelkin.types.spaces import SignatureSpec

__all__ = ["Candidates", "Changed", "Feed", "Snapshot", "SpaceIndex", "bytes_of"]

_SMALLEST = 64


@dataclass(frozen=True, slots=True)
class Changed:
    """Models that changed, many at a time.

    Attributes:
        ids: of the models, distinct, int64, shape ``(n,)``.
        contents: what each is now, by the id that every new content of a model is given, likewise;
            0 where it is a signature and nothing more.
        signatures: little-endian, all ``num_perm`` values of one after those of another.
    """

    ids: npt.NDArray[np.int64]
    contents: npt.NDArray[np.int64]
    signatures: bytes


class Feed(Protocol):
    """What happened in a space, as its database tells it.

    Attributes:
        horizon: removals up to this version are told no more: whoever saw the space at an earlier
            one has to begin anew.
    """

    @property
    def horizon(self) -> int: ...

    def changed(self, since: int) -> Iterable[Changed]:
        """The models that changed after ``since``, each once, as it is now."""

    def removed(self, since: int) -> Iterable[int]:
        """Ids of the models that were removed after ``since``."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """Models that a scan proposes.

    Attributes:
        ids: of the models, ascending, int64, shape ``(n,)``.
        contents: the ids of their contents, likewise; 0 where there can be no sketch.
        matches: how many bytes of their signatures equal the query's, int32, likewise.
    """

    ids: npt.NDArray[np.int64]
    contents: npt.NDArray[np.int64]
    matches: npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The index at one version of its space.

    Attributes:
        version: the space's.
        rows: the lowest byte of every value, uint8, shape ``(n, num_perm)``.
        ids: the model of each row, int64, shape ``(n,)``.
        contents: the id of its content, likewise.
        alive: whether the row still stands for its model, bool, shape ``(n,)``.
        dead: the rows that do not, int64.
        ordered: all but the newest rows, by their models' ids.
    """

    version: int
    rows: npt.NDArray[np.uint8]
    ids: npt.NDArray[np.int64]
    contents: npt.NDArray[np.int64]
    alive: npt.NDArray[np.bool_]
    dead: npt.NDArray[np.int64]
    ordered: OrderedRows

    def candidates(
        self,
        values: npt.NDArray[np.unsignedinteger],
        count: int,
        *,
        among: npt.NDArray[np.int64] | None = None,
    ) -> Candidates:
        """The ``count`` models that share most bytes with ``values``, by their ids.

        Of those that tie for the last places it takes the oldest, so that every process that sees
        this version proposes the same.

        Args:
            values: a signature of this space, shape ``(num_perm,)``.
            count: at least 1.
            among: only these models, ascending ids; all by default.
        """
        low = values.astype(np.uint8)
        if among is not None and among.size < self.ids.size // 4:
            rows = self._rows_of(among)
            matches: npt.NDArray[np.int32] = kernels().match_counts(self.rows[rows], low)
            chosen = _foremost(matches, self.ids[rows], values.size, count)
            rows = rows[chosen]
            return Candidates(self.ids[rows], self.contents[rows], matches[chosen])
        matches = kernels().match_counts(self.rows, low)
        matches[self.dead] = -1
        if among is not None:
            matches[~np.isin(self.ids, among)] = -1
        chosen = _foremost(matches, self.ids, values.size, count)
        return Candidates(self.ids[chosen], self.contents[chosen], matches[chosen])

    def __len__(self) -> int:
        return self.ids.size - self.dead.size

    def _rows_of(self, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The rows of those of the models that are here."""
        first = self.ordered.reach
        newest = first + np.flatnonzero(np.isin(self.ids[first:], ids))
        rows = np.concatenate([self.ordered.find(ids), newest])
        living: npt.NDArray[np.int64] = rows[self.alive[rows]]
        return living


def bytes_of(spec: SignatureSpec, models: int) -> int:
    """What a new index of so many models takes."""
    return models * _bytes_a_row(spec.num_perm)


def _bytes_a_row(num_perm: int) -> int:
    return num_perm + 2 * np.dtype(np.int64).itemsize + np.dtype(np.bool_).itemsize + BYTES


class SpaceIndex:
    """The growing index of one space.

    Args:
        spec: how the space's signatures are made.
    """

    def __init__(self, spec: SignatureSpec) -> None:
        self._dtype = value_dtype(spec.scheme).newbyteorder("<")
        self._num_perm = spec.num_perm
        self._lock = threading.Lock()
        self._begin()
        self._snapshot = self._take(0)

    def at(self, version: int, feed: Feed) -> Snapshot:
        """The index as of ``version`` or later, brought there by ``feed`` as far as it is behind.

        Args:
            feed: sees the space at ``version`` or later.
        """
        if self._snapshot.version >= version:
            return self._snapshot
        with self._lock:
            since = self._snapshot.version
            if since < version:
                if since < feed.horizon:
                    since = 0
                    self._begin()
                for changed in feed.changed(since):
                    self._append(changed)
                self._retire(np.fromiter(feed.removed(since), np.int64))
                self._compact()
                self._snapshot = self._take(version)
            return self._snapshot

    def __len__(self) -> int:
        return self._living

    @property
    def nbytes(self) -> int:
        """Bytes that it takes; room for growth takes none before it is used."""
        return self._count * _bytes_a_row(self._num_perm)

    def _begin(self) -> None:
        """Know nothing; snapshots keep what they have."""
        self._by_id = RowsById()
        self._rows = np.empty((_SMALLEST, self._num_perm), np.uint8)
        self._ids = np.empty(_SMALLEST, np.int64)
        self._contents = np.empty(_SMALLEST, np.int64)
        self._alive = np.zeros(_SMALLEST, np.bool_)
        self._count = self._living = 0

    def _append(self, changed: Changed) -> None:
        first, behind = self._count, self._count + changed.ids.size
        self._reserve(behind)
        self._retire(changed.ids)
        values = np.frombuffer(changed.signatures, self._dtype)
        self._rows[first:behind] = values.reshape(-1, self._num_perm)  # keeps the lowest bytes
        self._ids[first:behind] = changed.ids
        self._contents[first:behind] = changed.contents
        self._alive[first:behind] = True
        self._by_id.append(first, changed.ids.tolist())
        self._count, self._living = behind, self._living + changed.ids.size
        self._by_id.tidy(self._ids[:behind], self._alive[:behind])

    def _retire(self, model_ids: npt.NDArray[np.int64]) -> None:
        """The rows of these models stand for nothing from now on."""
        # What a published snapshot may be reading is replaced, never written: rows and ids only
        # grow.
        self._alive = self._alive.copy()
        rows = np.unique(self._by_id.find(model_ids))
        self._living -= int(np.count_nonzero(self._alive[rows]))
        self._alive[rows] = False

    def _compact(self) -> None:
        """Drop the dead rows once they are most of all; snapshots keep the old arrays."""
        if self._count < _SMALLEST or self._living * 2 >= self._count:
            return
        living = np.flatnonzero(self._alive[: self._count])
        self._resize(living, living.size, max(_SMALLEST, 2 * living.size))
        self._by_id = RowsById()
        self._by_id.append(0, self._ids[: self._count].tolist())
        self._by_id.tidy(self._ids[: self._count], self._alive[: self._count])

    def _reserve(self, count: int) -> None:
        if count > len(self._ids):
            kept = slice(self._count)  # no copy in between, of what may be most of the memory
            self._resize(kept, self._count, max(count, 2 * len(self._ids)))

    def _resize(self, kept: npt.NDArray[np.int64] | slice, count: int, capacity: int) -> None:
        rows = np.empty((capacity, self._rows.shape[1]), np.uint8)
        ids, contents = np.empty(capacity, np.int64), np.empty(capacity, np.int64)
        alive = np.zeros(capacity, np.bool_)
        rows[:count], ids[:count] = self._rows[kept], self._ids[kept]
        contents[:count], alive[:count] = self._contents[kept], self._alive[kept]
        self._rows, self._ids, self._contents, self._alive = rows, ids, contents, alive
        self._count = count

    def _take(self, version: int) -> Snapshot:
        n = self._count
        alive = self._alive[:n]
        dead = np.flatnonzero(~alive)
        arrays = self._rows[:n], self._ids[:n], self._contents[:n], alive, dead
        return Snapshot(version, *arrays, self._by_id.ordered)


def _foremost(
    matches: npt.NDArray[np.int32], ids: npt.NDArray[np.int64], most: int, count: int
) -> npt.NDArray[np.int64]:
    """The rows of the ``count`` largest counts that are not negative, of equal ones the least ids.

    Rows have no order that two processes share; ids have, and the rows are in theirs.
    """
    chosen = best(matches, most, count)
    if chosen.size == count:
        last = matches[chosen].min()
        tied, above = np.flatnonzero(matches == last), chosen[matches[chosen] > last]
        first = np.argpartition(ids[tied], count - above.size - 1)[: count - above.size]
        chosen = np.concatenate([above, tied[first]])
    return chosen[np.argsort(ids[chosen])]
