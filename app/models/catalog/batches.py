"""Batches: many models put in order, as single puts would be, in few transactions.

:class:`app.models.catalog.writer.ModelWriter` has the rules; this module only groups the writes.
It does not parse lines.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from app.infra.db.database import Database, Reader
from app.infra.errors import WrongKind
from app.models.catalog.puts import (
    PreparedSupport,
    Put,
    Stored,
    distinct_runs,
    require_fitting_subspace,
    require_same_space,
)
from app.models.catalog.writer import ModelWriter
from app.models.spaces.origins import (
    NOTHING_STATED,
    StatedOrigin,
    require_same_origin,
    unchecked_note,
)
from app.models.spaces.records import SpaceRecord
from modelkin.core.packed import packed_bytes
from modelkin.core.sketching.signature import Signature
from modelkin.core.sketching.sketch import Sketch
from modelkin.core.subspaces.subspace import Subspace
from modelkin.core.support import Support
from modelkin.errors import ModelkinError

__all__ = ["MAX_PENDING_BYTES", "BatchService", "BatchEntry", "RefusedEntry", "Result"]

_MAX_ENTRIES = 256
"""Entries of a transaction: enough that its sync costs little, and few enough for other writers."""
MAX_PENDING_BYTES = 32 << 20
"""Bytes of prepared supports that wait for a transaction."""


@dataclass(frozen=True, slots=True)
class BatchEntry:
    """One model of a batch; metadata that is ``None`` stays as it is."""

    model: str
    content: Support | Signature | Subspace
    tags: Sequence[str] | None = None
    attributes: dict[str, Any] | None = None
    source: str | None = None
    base_model: str | None = None
    sketch: Sketch | None = None
    """Sent beside a signature."""
    origin: StatedOrigin = NOTHING_STATED
    """The client's statement about the indices."""


@dataclass(frozen=True, slots=True)
class RefusedEntry:
    """An invalid entry; ``model`` is its name, if that could be read."""

    model: str | None
    error: ModelkinError


@dataclass(frozen=True, slots=True)
class Result:
    """The result of an entry.

    Attributes:
        model: the name, if it could be read.
        outcome: the stored model, or the error.
        note: the statements that a stored entry left out.
    """

    model: str | None
    outcome: Stored | ModelkinError
    note: str | None = None


class BatchService:
    """The use case that changes many models."""

    def __init__(self, database: Database, ingest: ModelWriter) -> None:
        self._database = database
        self._ingest = ingest

    def put(
        self, session: Reader, space: SpaceRecord, entries: Iterable[BatchEntry | RefusedEntry]
    ) -> list[Result]:
        """Put the entries in order; the results, in that order, are durable.

        A refused entry does not affect other entries. The last of several entries of one model
        counts. Entries are consumed as needed, so that few are in memory.

        Raises:
            SpaceNotFound: the space was deleted meanwhile.
            StorageFull, Unavailable: a store failed; earlier entries may be stored, and repeating
                the batch does not change them.
        """
        results: list[Result] = []
        waiting = iter(entries)
        while group := self._next_group(session, space, waiting):
            results.extend(self._store(space, group))
        return results

    def _next_group(
        self, session: Reader, space: SpaceRecord, entries: Iterator[BatchEntry | RefusedEntry]
    ) -> list[Put | RefusedEntry]:
        group: list[BatchEntry | RefusedEntry] = []
        size = 0
        for entry in entries:
            group.append(_check_entry(space, entry))
            size += _size(group[-1])
            if len(group) >= _MAX_ENTRIES or size >= MAX_PENDING_BYTES:
                break
        prepared = iter(self._ingest.prepare_each(session, space, list(_supports(group))))
        return [_put(entry, prepared) for entry in group]

    def _store(self, space: SpaceRecord, group: Sequence[Put | RefusedEntry]) -> list[Result]:
        stored: list[Stored | ModelkinError] = []
        puts = [put for put in group if isinstance(put, Put)]
        if puts:
            with self._database.writing() as session:
                for put in puts:  # of all runs: the first one may fail
                    self._ingest.delete_unless_committed(session, put)
                for run in distinct_runs(puts):
                    stored.extend(self._ingest.put_each(session, space, run))
        outcomes = iter(stored)
        return [
            Result(item.model, item.error)
            if isinstance(item, RefusedEntry)
            else Result(item.name, next(outcomes), unchecked_note(space, item.origin))
            for item in group
        ]


def _check_entry(space: SpaceRecord, entry: BatchEntry | RefusedEntry) -> BatchEntry | RefusedEntry:
    """The entry, or its refusal where it does not fit the space."""
    if isinstance(entry, RefusedEntry):
        return entry
    try:
        require_same_origin(space, entry.origin)
        if isinstance(entry.content, Subspace):
            require_fitting_subspace(space, entry.content)
        elif space.subspaces is not None:
            raise WrongKind(f"space {space.name!r} holds data subspaces: send a subspace a line")
        elif isinstance(entry.content, Signature):
            require_same_space(space, entry.content)
    except ModelkinError as error:
        return RefusedEntry(entry.model, error)
    return entry


def _supports(group: Sequence[BatchEntry | RefusedEntry]) -> Iterator[tuple[str, Support]]:
    """The supports of a group, with the names of their models."""
    for entry in group:
        if isinstance(entry, BatchEntry) and isinstance(entry.content, Support):
            yield entry.model, entry.content


def _put(
    entry: BatchEntry | RefusedEntry, supports: Iterator[PreparedSupport | ModelkinError]
) -> Put | RefusedEntry:
    """The put of an entry, with the next prepared support if it has one."""
    if isinstance(entry, RefusedEntry):
        return entry
    content = entry.content
    prepared = next(supports) if isinstance(content, Support) else content
    if isinstance(prepared, ModelkinError):
        return RefusedEntry(entry.model, prepared)
    return Put(
        entry.model,
        prepared,
        entry.tags,
        entry.attributes,
        entry.source,
        entry.base_model,
        sketch=entry.sketch,
        origin=entry.origin,
    )


def _size(entry: BatchEntry | RefusedEntry) -> int:
    """The bytes of a support that waits, packed too."""
    if isinstance(entry, BatchEntry) and isinstance(entry.content, Support):
        support = entry.content
        packed = packed_bytes(support.num_parameters, support.k, ordered=support.ordered)
        return support.indices.nbytes + (support.k if support.ordered else 0) + packed
    return 0
