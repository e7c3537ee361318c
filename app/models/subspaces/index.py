"""The in-process index of data subspaces: the columns of all models of a space, ready for queries.

It follows the change log of its space, as the index of signatures does. Changed models lie in a
second, small stack beside the first, so that the cost of a write depends on its own size and not on
that of the space. A space that does not fit into memory is read from the database at each query.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
import numpy.typing as npt

from app.infra.db.database import Reader
from app.models.index.repositories import changes
from app.models.spaces.records import SpaceRecord
from app.models.subspaces import repository
from modelkin.core.subspaces.affinity import Stack, scaled_columns
from modelkin.core.subspaces.subspace import Compare, Subspace

__all__ = ["SubspaceIndex"]

log = logging.getLogger(__name__)

Ids = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_COMPARES: tuple[Compare, ...] = ("classes", "whole")
_BYTES_PER_BYTE = 2
"""Bytes of memory for a stored byte: columns are stored in half precision."""
_MERGED_FROM, _MERGED_SHARE = 64, 8
"""The least models of a small stack that join the large one, and the least share: an eighth."""
_STREAMED = 1_000
"""Models that are read and compared at a time where they do not fit into memory."""


@dataclass(frozen=True, slots=True)
class _Part:
    """Some models of a space.

    Attributes:
        ids: the ids of the models, shape ``(n,)``.
        alive: whether a model has not changed since, shape ``(n,)``.
        stacks: their columns, by the compared blocks.
    """

    ids: Ids
    alive: npt.NDArray[np.bool_]
    stacks: dict[Compare, Stack]

    @classmethod
    def of(cls, subspaces: Sequence[tuple[int, Subspace]]) -> _Part:
        held = [subspace for _, subspace in subspaces]
        ids = np.array([model_id for model_id, _ in subspaces], np.int64)
        stacks = {compare: Stack.of(held, compare) for compare in _COMPARES}
        return cls(ids, np.ones(ids.size, np.bool_), stacks)

    def without(self, gone: Ids) -> _Part:
        return _Part(self.ids, self.alive & ~np.isin(self.ids, gone), self.stacks)

    def query(self, subject: Subspace, compare: Compare) -> tuple[Ids, Floats]:
        similarity = self.stacks[compare].query(scaled_columns(subject, compare))
        return self.ids[self.alive], similarity[self.alive]

    @property
    def nbytes(self) -> int:
        return sum(
            columns.nbytes for stack in self.stacks.values() for columns in stack.columns.values()
        )


@dataclass(slots=True)
class _Entry:
    """The index of a space at a version; parts are replaced as a whole."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    version: int = -1
    parts: tuple[_Part, ...] = ()
    held: dict[int, Subspace] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        return 2 * sum(part.nbytes for part in self.parts)


class SubspaceIndex:
    """The columns of the models of each space; the least recently used are evicted.

    Args:
        max_bytes: the most bytes of all spaces together; a space that would take more is not kept.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._entries: OrderedDict[int, _Entry] = OrderedDict()

    def query(
        self, session: Reader, space: SpaceRecord, subject: Subspace, compare: Compare
    ) -> tuple[Ids, Floats]:
        """Return the ids of all models of a space, and their S with a subject, in any order.

        Args:
            session: a view of the database.
            space: the space in that view.
            subject: a subspace that compares with the space's.
            compare: the blocks that meet.
        """
        found = [part.query(subject, compare) for part in self._parts(session, space)]
        if not found:
            return np.empty(0, np.int64), np.empty(0)
        return np.concatenate([ids for ids, _ in found]), np.concatenate([s for _, s in found])

    def forget(self, space_id: int) -> None:
        """Drop the columns of a deleted space."""
        with self._lock:
            self._entries.pop(space_id, None)

    def _parts(self, session: Reader, space: SpaceRecord) -> Iterable[_Part]:
        with self._lock:
            entry = self._entries.get(space.id)
            known = entry is not None
            if entry is None:
                entry = _Entry()
            else:
                self._entries.move_to_end(space.id)
        if not known:
            needed = 2 * _BYTES_PER_BYTE * repository.stored_bytes(session, space.id)
            if needed > self._max_bytes:
                return _stream(session, space)
            with self._lock:
                entry = self._entries.setdefault(space.id, entry)
        with entry.lock:
            _follow(entry, session, space)
            parts = entry.parts
        self._evict(space.id)
        return parts

    def _evict(self, in_use: int) -> None:
        with self._lock:
            total = sum(entry.nbytes for entry in self._entries.values())
            for space_id in list(self._entries):
                if total <= self._max_bytes:
                    return
                if space_id != in_use:
                    total -= self._entries.pop(space_id).nbytes
                    log.info("the subspaces of space %d leave memory for others", space_id)


def _stream(session: Reader, space: SpaceRecord) -> Iterator[_Part]:
    rows = repository.changed_since(session, space.id, -1)
    while some := list(islice(rows, _STREAMED)):
        yield _Part.of([(model_id, Subspace.from_bytes(data)) for model_id, data in some])


def _follow(entry: _Entry, session: Reader, space: SpaceRecord) -> None:
    """Bring a locked entry to the version of the space, or leave a newer one as it is."""
    if entry.version >= space.version:
        return
    if entry.version < space.compacted_version:
        entry.version, entry.parts, entry.held = -1, (), {}
    changed = {
        model_id: Subspace.from_bytes(data)
        for model_id, data in repository.changed_since(session, space.id, entry.version)
    }
    removed = changes.removed_since(session, space.id, entry.version)
    for model_id in removed:
        entry.held.pop(model_id, None)
    entry.held |= changed
    entry.version = space.version
    if not entry.parts:
        entry.parts = (_Part.of(list(entry.held.items())),)
        return
    gone = np.array([*changed, *removed], np.int64)
    base, *recent = (part.without(gone) for part in entry.parts)
    fresh = {
        model_id: entry.held[model_id]
        for part in recent
        for model_id in part.ids[part.alive].tolist()
    } | changed
    if len(fresh) > max(_MERGED_FROM, base.ids.size // _MERGED_SHARE):
        entry.parts = (_Part.of(list(entry.held.items())),)
    else:
        entry.parts = (base, _Part.of(list(fresh.items()))) if fresh else (base,)
