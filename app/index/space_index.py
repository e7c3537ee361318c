"""The signatures of one space, cut to a byte a value: the array that a query scans.

Rows are only ever appended, so a query works on a snapshot without a lock while writers go on. The
array is derived data: it follows the version of its space and is rebuilt from the database when the
process starts. It only proposes candidates and never says how similar anything is.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from modelkin.core.candidates import best
from modelkin.core.kernels.choice import kernels
from modelkin.core.signature import value_dtype
from modelkin.types import SignatureSpec

__all__ = ["Feed", "Snapshot", "SpaceIndex"]

_SMALLEST = 64
_AT_ONCE = 4096


class Feed(Protocol):
    """What happened in a space, as its database tells it."""

    def changed(self, since: int) -> Iterable[tuple[int, bytes]]:
        """Ids and signatures (little-endian) of the models that changed after ``since``."""

    def removed(self, since: int) -> Iterable[int]:
        """Ids of the models that were removed after ``since``."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The index at one version of its space.

    Attributes:
        version: the space's.
        rows: the lowest byte of every value, uint8, shape ``(n, num_perm)``.
        ids: the model of each row, int64, shape ``(n,)``.
        alive: whether the row still stands for its model, bool, shape ``(n,)``.
    """

    version: int
    rows: npt.NDArray[np.uint8]
    ids: npt.NDArray[np.int64]
    alive: npt.NDArray[np.bool_]

    def candidates(
        self,
        values: npt.NDArray[np.unsignedinteger],
        count: int,
        *,
        among: npt.NDArray[np.int64] | None = None,
    ) -> npt.NDArray[np.int64]:
        """The ids of the ``count`` models that share most bytes with ``values``, unordered.

        Args:
            values: a signature of this space, shape ``(num_perm,)``.
            count: at least 1.
            among: only these models, ascending ids; all by default.
        """
        eligible = self.alive
        if among is not None:
            eligible = eligible & np.isin(self.ids, among)
        matches: npt.NDArray[np.int32]
        if among is not None and among.size < self.ids.size // 4:
            few = np.flatnonzero(eligible)
            matches = kernels().match_counts(self.rows[few], values.astype(np.uint8))
            return self.ids[few[best(matches, values.size, count)]]
        matches = kernels().match_counts(self.rows, values.astype(np.uint8))
        matches[~eligible] = -1
        return self.ids[best(matches, values.size, count)]


class SpaceIndex:
    """The growing index of one space.

    Args:
        spec: how the space's signatures are made.
    """

    def __init__(self, spec: SignatureSpec) -> None:
        self._dtype = value_dtype(spec.scheme).newbyteorder("<")
        self._lock = threading.Lock()
        self._row_of: dict[int, int] = {}
        self._rows = np.empty((_SMALLEST, spec.num_perm), np.uint8)
        self._ids = np.empty(_SMALLEST, np.int64)
        self._alive = np.zeros(_SMALLEST, np.bool_)
        self._count = 0
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
                self._apply(feed.changed(since))
                self._remove(feed.removed(since))
                self._compact()
                self._snapshot = self._take(version)
            return self._snapshot

    def __len__(self) -> int:
        return len(self._row_of)

    @property
    def nbytes(self) -> int:
        """Bytes that the arrays hold, room for growth included."""
        return self._rows.nbytes + self._ids.nbytes + self._alive.nbytes

    def _apply(self, changes: Iterable[tuple[int, bytes]]) -> None:
        batch: list[tuple[int, bytes]] = []
        for change in changes:
            batch.append(change)
            if len(batch) == _AT_ONCE:
                self._append(batch)
                batch = []
        if batch:
            self._append(batch)

    def _append(self, batch: Sequence[tuple[int, bytes]]) -> None:
        self._reserve(self._count + len(batch))
        # What a published snapshot may be reading is replaced, never written: rows and ids only
        # grow.
        self._alive = self._alive.copy()
        values = np.frombuffer(b"".join(signature for _, signature in batch), self._dtype)
        at = self._count
        self._rows[at : at + len(batch)] = values.reshape(len(batch), -1).astype(np.uint8)
        for position, (model_id, _) in enumerate(batch, start=at):
            self._retire(model_id)
            self._row_of[model_id] = position
            self._ids[position] = model_id
            self._alive[position] = True
        self._count += len(batch)

    def _remove(self, model_ids: Iterable[int]) -> None:
        self._alive = self._alive.copy()
        for model_id in model_ids:
            self._retire(model_id)

    def _retire(self, model_id: int) -> None:
        row = self._row_of.pop(model_id, None)
        if row is not None:
            self._alive[row] = False

    def _compact(self) -> None:
        """Drop the dead rows once they are most of all; snapshots keep the old arrays."""
        if self._count < _SMALLEST or len(self._row_of) * 2 >= self._count:
            return
        living = np.flatnonzero(self._alive[: self._count])
        self._resize(living, max(_SMALLEST, 2 * living.size))
        self._row_of = {int(model_id): row for row, model_id in enumerate(self._ids[: self._count])}

    def _reserve(self, count: int) -> None:
        if count > len(self._ids):
            self._resize(np.arange(self._count), max(count, 2 * len(self._ids)))

    def _resize(self, kept: npt.NDArray[np.int64], capacity: int) -> None:
        rows = np.empty((capacity, self._rows.shape[1]), np.uint8)
        ids = np.empty(capacity, np.int64)
        alive = np.zeros(capacity, np.bool_)
        rows[: kept.size], ids[: kept.size] = self._rows[kept], self._ids[kept]
        alive[: kept.size] = self._alive[kept]
        self._rows, self._ids, self._alive, self._count = rows, ids, alive, kept.size

    def _take(self, version: int) -> Snapshot:
        n = self._count
        return Snapshot(version, self._rows[:n], self._ids[:n], self._alive[:n])
