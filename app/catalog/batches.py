"""Batches: many models put one after another, as single puts would be, in few transactions.

``ModelWriter`` has the rules; this module only decides what is written together. It never parses
a line and never does on its own account what a single put would not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from app.catalog.puts import PreparedSupport, Put, Stored, require_same_space
from app.catalog.writer import ModelWriter
from app.errors import SpaceNotFound, Unavailable
from app.infra.db.database import Database, Reader
from app.spaces.records import SpaceRecord
from modelkin.core.sketching.signature import Signature
from modelkin.core.sketching.sketch import Sketch
from modelkin.core.support import Support
from modelkin.errors import ModelkinError

__all__ = ["BYTES_AT_ONCE", "BatchService", "Entry", "Refused", "Result"]

_ENTRIES_AT_ONCE = 256
"""Entries of a transaction: many enough that its sync costs little, few enough that other writers
get their turn.
"""
BYTES_AT_ONCE = 32 << 20
"""Bytes of prepared supports that wait for a transaction."""

_FAULTS = (Unavailable, SpaceNotFound)
"""Not the entry's fault, and true of all that follow: these end the batch."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One model of a batch; tags and attributes that are None stay as they are."""

    model: str
    content: Support | Signature
    tags: Sequence[str] | None = None
    attributes: dict[str, Any] | None = None
    sketch: Sketch | None = None
    """Beside a signature."""


@dataclass(frozen=True, slots=True)
class Refused:
    """An entry that is none; ``model`` is its name, where that much could be read."""

    model: str | None
    error: ModelkinError


Result: TypeAlias = tuple[str | None, Stored | ModelkinError]
"""A model's name, and what became of its entry."""


class BatchService:
    """The use case that changes many models."""

    def __init__(self, database: Database, ingest: ModelWriter) -> None:
        self._database = database
        self._ingest = ingest

    def put(
        self, session: Reader, space: SpaceRecord, entries: Iterable[Entry | Refused]
    ) -> list[Result]:
        """Put the entries in order; what became of each, in that order, is durable.

        A refused entry leaves the others as they are. Of several entries of one model the last one
        stands. Entries are taken only as they are needed, so that few are in memory.

        Raises:
            SpaceNotFound: the space was deleted meanwhile.
            StorageFull, Unavailable: a store failed; entries before may be stored, and the same
                batch again changes nothing about those.
        """
        results: list[Result] = []
        waiting = iter(entries)
        while group := self._next_group(session, space, waiting):
            results.extend(self._store(space, group))
        return results

    def _next_group(
        self, session: Reader, space: SpaceRecord, entries: Iterator[Entry | Refused]
    ) -> list[Put | Refused]:
        group: list[Put | Refused] = []
        size = 0
        try:
            for entry in entries:
                put = self._prepare(session, space, entry)
                group.append(put)
                size += _size(put)
                if len(group) >= _ENTRIES_AT_ONCE or size >= BYTES_AT_ONCE:
                    break
        except BaseException:
            for put in group:
                if isinstance(put, Put):
                    self._ingest.discard(put)
            raise
        return group

    def _prepare(
        self, session: Reader, space: SpaceRecord, entry: Entry | Refused
    ) -> Put | Refused:
        if isinstance(entry, Refused):
            return entry
        content = entry.content
        try:
            if isinstance(content, Signature):
                require_same_space(space, content)
                return Put(entry.model, content, entry.tags, entry.attributes, sketch=entry.sketch)
            prepared = self._ingest.prepare(session, space, entry.model, content)
            return Put(entry.model, prepared, entry.tags, entry.attributes)
        except _FAULTS:
            raise
        except ModelkinError as error:
            return Refused(entry.model, error)

    def _store(self, space: SpaceRecord, group: Sequence[Put | Refused]) -> list[Result]:
        stored: list[Stored | ModelkinError] = []
        puts = [put for put in group if isinstance(put, Put)]
        if puts:
            with self._database.writing() as session:
                for run in _distinct(puts):
                    stored.extend(self._ingest.put_each(session, space, run))
        outcomes = iter(stored)
        return [
            (item.model, item.error) if isinstance(item, Refused) else (item.name, next(outcomes))
            for item in group
        ]


def _distinct(puts: Sequence[Put]) -> Iterator[list[Put]]:
    """Runs without a name twice: the second of two puts has to find what the first one left."""
    run: dict[str, Put] = {}
    for put in puts:
        if put.name in run:
            yield list(run.values())
            run = {}
        run[put.name] = put
    yield list(run.values())


def _size(put: Put | Refused) -> int:
    if isinstance(put, Put) and isinstance(put.content, PreparedSupport):
        return put.content.support.indices.nbytes + len(put.content.packed)
    return 0
