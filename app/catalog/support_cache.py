"""The support cache: opened and verified supports, ready for the next query.

A blob never changes under its key, so a verified support stays valid. The cache is limited,
because a mapped support holds a file descriptor and memory. It also occupies its space on the
disk until it is evicted, even if it was deleted.
"""

from __future__ import annotations

import threading

from cachetools import LRUCache

from modelkin.core.packed import PackedSupport

__all__ = ["SupportCache"]


class SupportCache:
    """The least recently used supports are evicted first.

    Args:
        max_entries: number of supports.
        max_bytes: size of all supports together; a larger one is not kept.
    """

    def __init__(self, max_entries: int, max_bytes: int) -> None:
        self._max_entries = max_entries
        self._lock = threading.Lock()
        self._supports: LRUCache[str, PackedSupport] = LRUCache(
            max_bytes, lambda packed: packed.array.nbytes
        )

    def get(self, blob_key: str) -> PackedSupport | None:
        """The support under this key, if it is cached."""
        with self._lock:
            return self._supports.get(blob_key)

    def put(self, blob_key: str, packed: PackedSupport) -> None:
        """Cache a support; the least recently used ones make room for it."""
        with self._lock:
            if packed.array.nbytes > self._supports.maxsize:
                return
            self._supports[blob_key] = packed
            while len(self._supports) > self._max_entries:
                self._supports.popitem()

    def __len__(self) -> int:
        return len(self._supports)

    @property
    def nbytes(self) -> int:
        """Size of all supports in the cache."""
        return int(self._supports.currsize)
