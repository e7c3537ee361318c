"""The signatures of one space, cut to a byte a value: the array that a query scans.

Rows are only appended, so a query reads a snapshot without a lock while writers continue. The
array is derived data: it follows the version of its space, and a new process rebuilds it from the
database. It proposes candidates and never estimates a similarity.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from app.index.parts import in_parts
from app.index.rows import BYTES_PER_ROW, OrderedRows, RowsById
from modelkin.core.kernels.choice import kernels
from modelkin.core.sketching.schemes import value_dtype
from modelkin.types.spaces import SignatureSpec

__all__ = [
    "ChangedModels",
    "Feed",
    "Scan",
    "ScanCandidates",
    "Snapshot",
    "SpaceIndex",
    "index_bytes",
]

_MIN_ROWS = 64
_HEADROOM = 4
"""Room for one new model for so many that are loaded. It takes memory once it is used."""


@dataclass(frozen=True, slots=True)
class ChangedModels:
    """A batch of models that changed.

    Attributes:
        ids: of the models, distinct, int64, shape ``(n,)``.
        contents: the ids of their present contents, likewise; every new content of a model gets a
            new id. 0 for a model that has only a signature.
        signatures: the ``num_perm`` values of each model, little-endian, concatenated.
    """

    ids: npt.NDArray[np.int64]
    contents: npt.NDArray[np.int64]
    signatures: bytes


class Feed(Protocol):
    """The changes of a space, read from its database.

    Attributes:
        compacted_version: removals up to this version are deleted, so an index of an earlier
            version has to start again.
        models: how many the space has, about.
    """

    @property
    def compacted_version(self) -> int: ...

    @property
    def models(self) -> int: ...

    def changed(self, since: int) -> Iterable[ChangedModels]:
        """The models that changed after ``since``, each once, in its present state."""

    def removed(self, since: int) -> Iterable[int]:
        """The ids of the models that were removed after ``since``."""


@dataclass(frozen=True, slots=True)
class ScanCandidates:
    """Models that a scan proposes.

    Attributes:
        ids: of the models, ascending, int64, shape ``(n,)``.
        contents: the ids of their contents, likewise; 0 for a model that cannot have a sketch.
        matches: how many bytes of their signatures equal the query's, int16, likewise.
    """

    ids: npt.NDArray[np.int64]
    contents: npt.NDArray[np.int64]
    matches: npt.NDArray[np.int16]


@dataclass(frozen=True, slots=True)
class Scan:
    """How many bytes of each signature equal those of a query.

    Attributes:
        ids: of the models, int64, shape ``(n,)``.
        contents: as in :class:`ScanCandidates`, likewise.
        matches: the equal bytes, int16, likewise; -1 for a model that is not searched.
        num_perm: h.
    """

    ids: npt.NDArray[np.int64]
    contents: npt.NDArray[np.int64]
    matches: npt.NDArray[np.int16]
    num_perm: int

    def best(self, count: int) -> ScanCandidates:
        """The ``count`` models with the most equal bytes, ordered by id; ties to the oldest."""
        return self._at(_best_rows(self.matches, self.ids, self.num_perm, count))

    def others(self, best: ScanCandidates, least: int) -> ScanCandidates:
        """The models that are not among the best ones and have at least ``least`` equal bytes."""
        if not best.ids.size or least > best.matches.min():
            return self._at(np.empty(0, np.int64))
        rows = np.flatnonzero(self.matches >= max(0, least))
        return self._at(rows[~np.isin(self.ids[rows], best.ids)])

    def _at(self, rows: npt.NDArray[np.int64]) -> ScanCandidates:
        return ScanCandidates(self.ids[rows], self.contents[rows], self.matches[rows])


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The index at one version of its space.

    Attributes:
        version: the space's.
        rows: the lowest byte of every value, uint8, shape ``(n, num_perm)``.
        ids: the model of each row, int64, shape ``(n,)``.
        contents: the id of its content, likewise.
        alive: whether the row is its model's present one, bool, shape ``(n,)``.
        dead: the rows that are not alive, int64.
        ordered: all but the newest rows, by model id.
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
    ) -> ScanCandidates:
        """The ``count`` models that share most bytes with ``values``, ordered by id.

        Of models that tie for the last places it takes the oldest, so that every process at this
        version proposes the same.

        Args:
            values: a signature of this space, shape ``(num_perm,)``.
            count: at least 1.
            among: the models to choose from, ascending ids; all by default.
        """
        return self.scan(values, among=among).best(count)

    def scan(
        self,
        values: npt.NDArray[np.unsignedinteger],
        *,
        among: npt.NDArray[np.int64] | None = None,
    ) -> Scan:
        """Count the equal bytes of all models, or of some; arguments as in :meth:`candidates`."""
        low = values.astype(np.uint8)
        if among is not None and among.size < self.ids.size // 4:
            rows = self._rows_of(among)
            some: npt.NDArray[np.int16] = kernels().match_counts(self.rows[rows], low)
            return Scan(self.ids[rows], self.contents[rows], some, values.size)
        matches = self.counts(values)
        matches[self.dead] = -1
        if among is not None:
            matches[~np.isin(self.ids, among)] = -1
        return Scan(self.ids, self.contents, matches, values.size)

    def counts(self, values: npt.NDArray[np.unsignedinteger]) -> npt.NDArray[np.int16]:
        """How many bytes of each row, living or dead, equal those of ``values``, ``(n,)``."""
        low, found = values.astype(np.uint8), np.empty(self.ids.size, np.int16)
        count = kernels().match_counts
        in_parts(found.size, lambda part: count(self.rows[part], low, found[part]))
        return found

    def __len__(self) -> int:
        return self.ids.size - self.dead.size

    def _rows_of(self, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The living rows of these models; models that are not indexed have none."""
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
        spec: how the space's signatures are made.
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
                    for changed in feed.changed(since):
                        self._append(changed)
                self._retire(np.fromiter(feed.removed(since), np.int64))
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
        self._rows = np.empty((_MIN_ROWS, self._num_perm), np.uint8)
        self._ids = np.empty(_MIN_ROWS, np.int64)
        self._contents = np.empty(_MIN_ROWS, np.int64)
        self._alive = np.zeros(_MIN_ROWS, np.bool_)
        self._count = self._living = 0

    def _load(self, feed: Feed) -> None:
        """Fill an empty index; its arrays are made once, so that no copy doubles the memory."""
        self._reserve(feed.models + feed.models // _HEADROOM)
        for changed in feed.changed(0):
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
        self._rows[first:behind] = values.reshape(-1, self._num_perm)  # keeps the lowest bytes
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
        rows = np.empty((capacity, self._rows.shape[1]), np.uint8)
        ids, contents = np.empty(capacity, np.int64), np.empty(capacity, np.int64)
        alive = np.zeros(capacity, np.bool_)
        rows[:count], ids[:count] = self._rows[kept], self._ids[kept]
        contents[:count], alive[:count] = self._contents[kept], self._alive[kept]
        self._rows, self._ids, self._contents, self._alive = rows, ids, contents, alive
        self._count = count

    def _make_snapshot(self, version: int) -> Snapshot:
        n = self._count
        alive = self._alive[:n]
        dead = np.flatnonzero(~alive)
        arrays = self._rows[:n], self._ids[:n], self._contents[:n], alive, dead
        return Snapshot(version, *arrays, self._by_id.ordered)


def _best_rows(
    matches: npt.NDArray[np.int16], ids: npt.NDArray[np.int64], num_perm: int, count: int
) -> npt.NDArray[np.int64]:
    """The rows of the ``count`` largest counts above -1, in the order of their ids.

    Ties go to the lowest ids: unlike rows, ids have an order that all processes share.
    """
    best = kernels().best
    parts = in_parts(
        matches.size, lambda part: best(matches[part], num_perm, count) + (part.start or 0)
    )
    rows: npt.NDArray[np.int64] = np.concatenate(parts) if len(parts) > 1 else parts[0]
    if rows.size > count:
        counts = matches[rows]
        last = np.partition(counts, rows.size - count)[rows.size - count]
        above, tied = rows[counts > last], rows[counts == last]
        first = np.argpartition(ids[tied], count - above.size - 1)[: count - above.size]
        rows = np.concatenate([above, tied[first]])
    return rows[np.argsort(ids[rows])]
