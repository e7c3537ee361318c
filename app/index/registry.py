"""The indexes of all spaces, by space id, which is never used again."""

from __future__ import annotations

import threading

from app.index.space_index import SpaceIndex
from modelkin.types import SignatureSpec

__all__ = ["IndexRegistry"]


class IndexRegistry:
    """One :class:`SpaceIndex` a space, made when first asked for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._indexes: dict[int, SpaceIndex] = {}

    def of(self, space_id: int, spec: SignatureSpec) -> SpaceIndex:
        """The index of a space whose signatures are made as ``spec`` says."""
        with self._lock:
            index = self._indexes.get(space_id)
            if index is None:
                index = self._indexes[space_id] = SpaceIndex(spec)
            return index

    def totals(self) -> tuple[int, int, int]:
        """How many spaces are indexed, how many models, and in how many bytes."""
        with self._lock:
            indexes = list(self._indexes.values())
        return len(indexes), sum(len(i) for i in indexes), sum(i.nbytes for i in indexes)

    def forget(self, space_id: int) -> None:
        """Let the index of a deleted space go."""
        with self._lock:
            self._indexes.pop(space_id, None)
