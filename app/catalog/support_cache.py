"""Supports that were opened and verified, kept open for the next query.

A blob never changes under its key, so what was right once is right for ever. Owns how much is kept:
a mapped support holds a file descriptor, stays in memory while there is room for it, and takes its
room on the disk until it is let go here, deleted or not.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

from modelkin.core.packed import PackedSupport

__all__ = ["SupportCache"]


class SupportCache:
    """The supports that were used last.

    Args:
        most: how many.
        most_bytes: of all of them together.
    """

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._supports: OrderedDict[str, PackedSupport] = OrderedDict()
        self._bytes = 0

    def get(self, blob_key: str) -> PackedSupport | None:
        """The support under this key, if it is kept."""
        with self._lock:
            packed = self._supports.get(blob_key)
            if packed is not None:
                self._supports.move_to_end(blob_key)
            return packed

    def keep(self, blob_key: str, packed: PackedSupport) -> None:
        """Keep a support, and let those go that were used longest ago."""
        with self._lock:
            self._forget(blob_key)
            self._supports[blob_key] = packed
            self._bytes += packed.array.nbytes
            while len(self._supports) > self._most or self._bytes > self._most_bytes:
                self._forget(next(iter(self._supports)))

    def __len__(self) -> int:
        return len(self._supports)

    @property
    def nbytes(self) -> int:
        """Bytes of all that is kept."""
        return self._bytes

    def _forget(self, blob_key: str) -> None:
        packed = self._supports.pop(blob_key, None)
        if packed is not None:
            self._bytes -= packed.array.nbytes
