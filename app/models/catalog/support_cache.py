"""The support cache: opened and verified supports, ready for the next query.

A blob never changes under its key, so a verified support stays valid. The supports are in memory:
whatever happens to their files meanwhile, they are what was verified. A query asks for dozens of
supports, so this is an ``OrderedDict``: a library's LRU cache takes longer than opening a file.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

from modelkin.core.packed import PackedSupport

__all__ = ["SupportCache"]


class SupportCache:
    """The least recently used supports are evicted first.

    Args:
        max_entries: number of supports.
        max_bytes: size of all supports together; a larger one is not kept.

    Attributes:
        nbytes: size of all supports in the cache.
    """

    def __init__(self, max_entries: int, max_bytes: int) -> None:
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._supports: OrderedDict[str, PackedSupport] = OrderedDict()
        self.nbytes = 0

    def get(self, blob_key: str) -> PackedSupport | None:
        """The support under this key, if it is cached."""
        with self._lock:
            found = self._supports.get(blob_key)
            if found is not None:
                self._supports.move_to_end(blob_key)
            return found

    def put(self, blob_key: str, packed: PackedSupport) -> None:
        """Cache a support; the least recently used ones make room for it."""
        size = packed.nbytes
        if size > self._max_bytes:
            return
        with self._lock:
            replaced = self._supports.pop(blob_key, None)
            if replaced is not None:
                self.nbytes -= replaced.nbytes
            self._supports[blob_key] = packed
            self.nbytes += size
            while len(self._supports) > self._max_entries or self.nbytes > self._max_bytes:
                self.nbytes -= self._supports.popitem(last=False)[1].nbytes

    def __len__(self) -> int:
        return len(self._supports)
