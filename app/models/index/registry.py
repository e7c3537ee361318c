"""The registry of in-process indexes: an LRU cache by space id, with a limit in bytes.

An evicted index is built again from the database at the next query of its space, so an eviction
costs time and nothing else. Space ids are never reused. The cache is an ``OrderedDict``, not a
library's LRU cache, because indexes grow after they are inserted and the index in use must stay.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from dataclasses import dataclass

from app.models.index.space_index import Feed, Snapshot, SpaceIndex
from modelkin.types.spaces import SignatureSpec

__all__ = ["IndexRegistry"]

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Entry:
    index: SpaceIndex
    nbytes: int = 0


class IndexRegistry:
    """One :class:`SpaceIndex` a space, created at its first use.

    Args:
        max_bytes: the most bytes of all indexes; beyond it the least recently used are evicted. The
            index in use stays, however large it is.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._lock = threading.Lock()
        self._entries: OrderedDict[int, _Entry] = OrderedDict()
        self._nbytes = 0

    def snapshot_at(self, space_id: int, spec: SignatureSpec, version: int, feed: Feed) -> Snapshot:
        """Return a snapshot of a space's index at ``version`` or later.

        Args:
            spec: the specification of the space's signatures.
            feed: a feed that sees the space at ``version`` or later.
        """
        with self._lock:
            entry = self._entries.setdefault(space_id, _Entry(SpaceIndex(spec)))
            self._entries.move_to_end(space_id)
        snapshot = entry.index.snapshot_at(version, feed)
        if entry.index.nbytes != entry.nbytes:
            self._update_size(space_id, entry)
        return snapshot

    def totals(self) -> tuple[int, int, int]:
        """The number of indexed spaces, of their models, and of the bytes they take."""
        with self._lock:
            indexes = [entry.index for entry in self._entries.values()]
        return len(indexes), sum(len(i) for i in indexes), sum(i.nbytes for i in indexes)

    def space_ids(self) -> list[int]:
        """The ids of the spaces that are indexed."""
        with self._lock:
            return list(self._entries)

    def forget(self, space_id: int) -> None:
        """Drop the index of a deleted space."""
        with self._lock:
            self._evict(space_id)

    def _update_size(self, space_id: int, entry: _Entry) -> None:
        """Record how large an index has become, and evict others if the total is too large."""
        with self._lock:
            if self._entries.get(space_id) is not entry:
                return
            self._nbytes += entry.index.nbytes - entry.nbytes
            entry.nbytes = entry.index.nbytes
            gone = []
            while self._nbytes > self.max_bytes and len(self._entries) > 1:
                gone.append(next(each for each in self._entries if each != space_id))
                self._evict(gone[-1])
        if gone:
            log.info(
                "the index of space %d leaves no room for those of spaces %s: "
                "MODELKIN_INDEX_MEMORY_BYTES is %d",
                space_id,
                ", ".join(map(str, gone)),
                self.max_bytes,
            )

    def _evict(self, space_id: int) -> None:
        entry = self._entries.pop(space_id, None)
        if entry is not None:
            self._nbytes -= entry.nbytes
