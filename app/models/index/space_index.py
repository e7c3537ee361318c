"""The signatures of one space, cut to a byte a value: the array that a query scans.

Rows are only appended, so a query reads a snapshot without a lock while writers continue. The array
is derived data: it follows the version of its space, and a new process rebuilds it from the
database. The index proposes candidates and never estimates a similarity.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from app.models.index.columns import ByteColumns
from app.models.index.rows import BYTES_PER_ROW, OrderedRows, RowsById
from app.models.index.scan import Scan, ScanCandidates, scan_nearest
from modelkin.core.sketching.schemes import value_dtype
from modelkin.types.spaces import SignatureSpec

__all__ = [
    "ChangedModels",
    "Feed",
    "Snapshot",
    "SpaceIndex",
    "index_bytes",
]

_MIN_ROWS = 64
_HEADROOM = 4
"""Room for one new model for each four that are loaded. It takes memory once it is used."""


@dataclass(frozen=True, slots=True)
class ChangedModels:
    """A batch of models that changed.

    Attributes:
        ids: the ids of the models, distinct, int64, shape ``(n,)``.
        contents: the ids of their present contents, int64, shape ``(n,)``; every new content of a
            model gets a new id. 0 for a model that has only a signature.
        signatures: the ``num_perm`` values of each model, little-endian, concatenated.
    """

    ids: npt.NDArray[np.int64]
    contents: npt.NDArray[np.int64]
    signatures: bytes


class Feed(Protocol):
    """The changes of a space, read from its database.

    Attributes:
        compacted_version: the version up to which removals are deleted; an index of an earlier
            version has to start again.
        models: the approximate number of models of the space.
    """

    @property
    def compacted_version(self) -> int: ...

    @property
    def models(self) -> int: ...

    def changed_since(self, since: int) -> Iterable[ChangedModels]:
        """The models that changed after ``since``, each once, in its present state."""

    def removed_since(self, since: int) -> Iterable[int]:
        """The ids of the models that were removed after ``since``."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The index at one version of its space.

    Attributes:
        rows: the lowest byte of every value.
        ids: the model of each row, int64, shape ``(n,)``.
        contents: the id of its content, int64, shape ``(n,)``.
        alive: whether the row is its model's present one, bool, shape ``(n,)``.
        dead: the rows that are not alive, int64.
        ordered: all rows but the newest, by model id.
    """

    version: int
    rows: ByteColumns
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
    ) -> ScanCandidates:
        """Return the ``count`` models that share most bytes with ``values``, ordered by id.

        Among models that tie for the last places the oldest are taken, so that every process at
        this version proposes the same.

        Args:
            values: a signature of this space, shape ``(num_perm,)``.
            count: the number of models, at least 1.
            among: the models to choose from, ascending ids; all by default.
        """
        return self.scan(values, among=among).best(count)

    def scan(
        self,
        values: npt.NDArray[np.unsignedinteger],
        *,
        among: npt.NDArray[np.int64] | None = None,
        nearest: int = 0,
        least: int = 0,
    ) -> Scan:
        """Count the equal bytes of all models, or of some; ``among`` is as for :meth:`candidates`.

        Args:
            nearest: the number of nearest models that must be found; others may be left out. 0 for
                all.
            least: with ``nearest``, models with fewer equal bytes may be left out, too.
        """
        low = values.astype(np.uint8)
        if among is not None and among.size < self.ids.size // 4:
            rows = self._rows_of(among)
            some = self.rows.counts_at(low, rows, since=0)
            return Scan(self.ids[rows], self.contents[rows], some, values.size)
        if among is None and nearest and self.rows.halved:
            return self._scan_nearest(low, nearest, least)
        matches = self.counts(low)
        matches[self.dead] = -1
        if among is not None:
            matches[~np.isin(self.ids, among)] = -1
        return Scan(self.ids, self.contents, matches, values.size)

    def counts(self, values: npt.NDArray[np.unsignedinteger]) -> npt.NDArray[np.int16]:
        """Count the bytes of each row, living or dead, that equal those of ``values``, ``(n,)``."""
        return self.rows.counts(values.astype(np.uint8))

    def _scan_nearest(self, low: npt.NDArray[np.uint8], nearest: int, least: int) -> Scan:
        counts, rows, floor = scan_nearest(self.rows, low, nearest, least, self.dead)
        if rows is None:
            return Scan(self.ids, self.contents, counts, low.size)

        ids, contents = self.ids[rows], self.contents[rows]
        return Scan(ids, contents, counts, low.size, floor, lambda: self.scan(low))

    def __len__(self) -> int:
        return self.ids.size - self.dead.size

    def _rows_of(self, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the living rows of these models; models that are not indexed have none."""
        first = self.ordered.end
        newest = first + np.flatnonzero(np.isin(self.ids[first:], ids))
        rows = np.concatenate([self.ordered.find(ids), newest])
        living: npt.NDArray[np.int64] = rows[self.alive[rows]]
        return living


def index_bytes(spec: SignatureSpec, models: int) -> int:
    """The bytes that a new index of ``models`` models takes."""
    return models * _bytes_per_row(spec.num_perm)


def _bytes_per_row(num_perm: int) -> int:
    return num_perm + 2 * np.dtype(np.int64).itemsize + np.dtype(np.bool_).itemsize + BYTES_PER_ROW


class SpaceIndex:
    """The growing index of one space.

    Args:
        spec: the specification of the space's signatures.
    """

    def __init__(self, spec: SignatureSpec) -> None:
        self._dtype = value_dtype(spec.scheme).newbyteorder("<")
        self._num_perm = spec.num_perm
        self._lock = threading.Lock()
        self._reset()
        self._snapshot = self._make_snapshot(0)

    def snapshot_at(self, version: int, feed: Feed) -> Snapshot:
        """A snapshot at ``version`` or later; an index that is behind first follows ``feed``.

        Args:
            feed: sees the space at ``version`` or later.
        """
        if self._snapshot.version >= version:
            return self._snapshot
        with self._lock:
            since = self._snapshot.version
            if since < version:
                if since < feed.compacted_version:
                    since = 0
                if since == 0:  # nothing is published, only what a failed load may have left
                    self._reset()
                    self._load(feed)
                else:
                    for changed in feed.changed_since(since):
                        self._append(changed)
                self._retire(np.fromiter(feed.removed_since(since), np.int64))
                self._compact()
                self._snapshot = self._make_snapshot(version)
            return self._snapshot

    def __len__(self) -> int:
        return self._living

    @property
    def nbytes(self) -> int:
        """The bytes in use; memory reserved for growth counts once it is used."""
        return self._count * _bytes_per_row(self._num_perm)

    def _reset(self) -> None:
        """Start empty; snapshots keep their arrays."""
        self._by_id = RowsById()
        self._rows = ByteColumns.empty(_MIN_ROWS, self._num_perm)
        self._ids = np.empty(_MIN_ROWS, np.int64)
        self._contents = np.empty(_MIN_ROWS, np.int64)
        self._alive = np.zeros(_MIN_ROWS, np.bool_)
        self._count = self._living = 0

    def _load(self, feed: Feed) -> None:
        """Fill an empty index; its arrays are made once, so that no copy doubles the memory."""
        self._reserve(feed.models + feed.models // _HEADROOM)
        for changed in feed.changed_since(0):
            self._fill(changed)
        self._by_id.load(self._ids[: self._count])

    def _append(self, changed: ChangedModels) -> None:
        first = self._count
        self._retire(changed.ids)
        self._fill(changed)
        self._by_id.append(first, changed.ids.tolist())
        self._by_id.consolidate(self._ids[: self._count], self._alive[: self._count])

    def _fill(self, changed: ChangedModels) -> None:
        """Write the rows of models that have none."""
        first, behind = self._count, self._count + changed.ids.size
        self._reserve(behind)
        values = np.frombuffer(changed.signatures, self._dtype)
        self._rows.write(first, values.reshape(-1, self._num_perm))
        self._ids[first:behind] = changed.ids
        self._contents[first:behind] = changed.contents
        self._alive[first:behind] = True
        self._count, self._living = behind, self._living + changed.ids.size

    def _retire(self, model_ids: npt.NDArray[np.int64]) -> None:
        """Mark the rows of these models as dead."""
        rows = np.unique(self._by_id.find(model_ids))
        if not rows.size:
            return
        # A published snapshot may be reading this array, so it is replaced and never written. Rows
        # and ids only grow.
        self._alive = self._alive.copy()
        self._living -= int(np.count_nonzero(self._alive[rows]))
        self._alive[rows] = False

    def _compact(self) -> None:
        """Drop the dead rows once they are the majority; snapshots keep the old arrays."""
        if self._count < _MIN_ROWS or self._living * 2 >= self._count:
            return
        living = np.flatnonzero(self._alive[: self._count])
        self._resize(living, living.size, max(_MIN_ROWS, 2 * living.size))
        self._by_id = RowsById()
        self._by_id.load(self._ids[: self._count])

    def _reserve(self, count: int) -> None:
        if count > len(self._ids):
            kept = slice(self._count)  # a view: a copy could take most of the memory
            self._resize(kept, self._count, max(count, 2 * len(self._ids)))

    def _resize(self, kept: npt.NDArray[np.int64] | slice, count: int, capacity: int) -> None:
        rows = ByteColumns.empty(capacity, self._num_perm)
        ids, contents = np.empty(capacity, np.int64), np.empty(capacity, np.int64)
        alive = np.zeros(capacity, np.bool_)
        rows.copy(self._rows, kept, count)
        ids[:count] = self._ids[kept]
        contents[:count], alive[:count] = self._contents[kept], self._alive[kept]
        self._rows, self._ids, self._contents, self._alive = rows, ids, contents, alive
        self._count = count

    def _make_snapshot(self, version: int) -> Snapshot:
        n = self._count
        alive = self._alive[:n]
        dead = np.flatnonzero(~alive)
        arrays = self._rows.first(n), self._ids[:n], self._contents[:n], alive, dead
        return Snapshot(version, *arrays, self._by_id.ordered)
