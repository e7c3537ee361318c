"""The registry of in-process indexes: an LRU cache by space id, with a limit in bytes.

An evicted index is built again from the database at the next query of its space, so an eviction
costs time and nothing else. Space ids are never reused.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from dataclasses import dataclass

from app.index.space_index import Feed, Snapshot, SpaceIndex
from modelkin.types.spaces import SignatureSpec

__all__ = ["IndexRegistry"]

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Held:
    index: SpaceIndex
    nbytes: int = 0


class IndexRegistry:
    """One :class:`SpaceIndex` a space, created at its first use.

    Args:
        most: bytes of all indexes; beyond it the least recently used are evicted. The index in use
            stays, however large it is.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._lock = threading.Lock()
        self._held: OrderedDict[int, _Held] = OrderedDict()
        self._nbytes = 0

    def snapshot_at(self, space_id: int, spec: SignatureSpec, version: int, feed: Feed) -> Snapshot:
        """A snapshot of a space's index at ``version`` or later.

        Args:
            spec: how the space's signatures are made.
            feed: sees the space at ``version`` or later.
        """
        with self._lock:
            held = self._held.setdefault(space_id, _Held(SpaceIndex(spec)))
            self._held.move_to_end(space_id)
        snapshot = held.index.snapshot_at(version, feed)
        if held.index.nbytes != held.nbytes:
            self._weigh(space_id, held)
        return snapshot

    def totals(self) -> tuple[int, int, int]:
        """The number of indexed spaces, of their models, and of the bytes they take."""
        with self._lock:
            indexes = [held.index for held in self._held.values()]
        return len(indexes), sum(len(i) for i in indexes), sum(i.nbytes for i in indexes)

    def space_ids(self) -> list[int]:
        """The ids of the spaces that are indexed."""
        with self._lock:
            return list(self._held)

    def forget(self, space_id: int) -> None:
        """Drop the index of a deleted space."""
        with self._lock:
            self._let_go(space_id)

    def _weigh(self, space_id: int, held: _Held) -> None:
        """Record how large an index has become, and evict others if the total is too large."""
        with self._lock:
            if self._held.get(space_id) is not held:
                return
            self._nbytes += held.index.nbytes - held.nbytes
            held.nbytes = held.index.nbytes
            gone = []
            while self._nbytes > self.most and len(self._held) > 1:
                gone.append(next(each for each in self._held if each != space_id))
                self._let_go(gone[-1])
        if gone:
            log.info(
                "the index of space %d leaves no room for those of spaces %s: "
                "MODELKIN_INDEX_MEMORY_BYTES is %d",
                space_id,
                ", ".join(map(str, gone)),
                self.most,
            )

    def _let_go(self, space_id: int) -> None:
        held = self._held.pop(space_id, None)
        if held is not None:
            self._nbytes -= held.nbytes
