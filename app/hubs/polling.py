"""``HubPoller``: compare a hub's listing with its last known state, since webhooks get lost.

Every new, changed or deleted model gets a sync job, as if a hub event had announced it. Polling
downloads and stores nothing.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum, auto
from typing import Any, Final

from app.hubs.clients.protocol import Hub, HubModel
from app.hubs.filters import unnamable
from app.hubs.records import SeenModel
from app.hubs.repositories import fingerprint_states, source_models, sources
from app.hubs.service import OpenSource, SourceService
from app.hubs.sync_requests import SyncScheduler
from app.infra.db.database import Database, Reader, Writer
from app.infra.errors import HubForbidden, HubNotFound, HubProtocolError, SourceNotFound
from app.jobs.records import JobRecord
from app.jobs.service import CommitHook, Progress
from modelkin.errors import JobCancelled, ModelkinError

__all__ = ["TICK", "ListingDiff", "HubPoller", "compare"]

TICK: Final = "source_polls"
"""The kind of the periodic jobs that enqueue the polls that are due."""
_MAX_SOURCES_PER_TICK = 100
"""The most polls that are enqueued at a time; further polls wait for the next tick."""
_MAX_UNLISTED = 1000
"""The most unlisted models that a poll looks up one by one; beyond it, a random sample."""
_DELETED: Final = {"outcome": "ignored", "reason": "the source was deleted"}
_MAX_NAMED, _MAX_SHOWN = 20, 200
"""Names that cannot be kept and that are shown all the same, and characters of each."""
_BATCH_SIZE = 100
"""Sync jobs that one transaction enqueues, so that others may write in between."""


@dataclass(slots=True)
class ListingDiff:
    """The difference between a hub's listing and its last known state.

    Attributes:
        models: the number of followed models in the listing.
        new, changed, gone: names of the models to synchronize.
        back: names of the models that the previous listing lacked.
        tags: the digests of tags to record, by the names of models.
        dates: when models were changed last on the hub, where that is not known yet.
        unlisted: names of stored models that the previous listing lacked, too: the poll looks up
            each.
        unnamable: the number of models whose names are invalid here.
        unnamable_models: the first of them, each with the reason.
        absent_owners: the first owners in the source's filters of whom the listing has no model.
    """

    models: int = 0
    new: dict[str, str | None] = field(default_factory=dict)
    changed: dict[str, str | None] = field(default_factory=dict)
    gone: list[str] = field(default_factory=list)
    back: list[str] = field(default_factory=list)
    tags: dict[str, str] = field(default_factory=dict)
    dates: dict[str, datetime] = field(default_factory=dict)
    unlisted: list[str] = field(default_factory=list)
    unnamable: int = 0
    unnamable_models: dict[str, str] = field(default_factory=dict)
    absent_owners: list[str] = field(default_factory=list)

    def to_sync(self) -> Iterator[tuple[str, str | None]]:
        """The models to synchronize, with their listed revisions."""
        yield from self.new.items()
        yield from self.changed.items()
        yield from ((name, None) for name in self.gone)

    def to_json(self) -> dict[str, Any]:
        """The counts, and for people the first names that cannot be kept or found."""
        counts = {name: len(getattr(self, name)) for name in ("new", "changed", "gone")}
        named = {"unnamable_models": self.unnamable_models} if self.unnamable else {}
        absent = {"absent_owners": self.absent_owners} if self.absent_owners else {}
        return {"models": self.models, **counts, "unnamable": self.unnamable, **named, **absent}


class HubPoller:
    """Polls the hubs of sources.

    Args:
        database: the database with the state of sources.
        sync: the service that enqueues sync jobs.
        source_service: opens a source for its poll, with its token decrypted.
        hub_of: a function that opens the hub of a source.
        now: returns the present moment, in UTC.
    """

    def __init__(
        self,
        database: Database,
        sync: SyncScheduler,
        source_service: SourceService,
        hub_of: Callable[[OpenSource], AbstractContextManager[Hub]],
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._database = database
        self._sync = sync
        self._source_service = source_service
        self._hub_of = hub_of
        self._now = now

    def due(self) -> int:
        """Enqueue the polls that are due now; return their number."""
        with self._database.writing() as session:
            now = self._now()
            found = sources.due_sources(session, now, limit=_MAX_SOURCES_PER_TICK)
            for source in found:
                self._sync.sync_hub(
                    session, source.tenant, source.id, space=source.space, in_time=True
                )
                sources.put_off_poll(session, source, now)
        return len(found)

    def any_due(self, session: Reader) -> bool:
        """Whether the poll of a source is due."""
        return sources.any_due(session, self._now())

    def enqueue_due(self, job: JobRecord, progress: Progress) -> Mapping[str, Any]:
        """Carry out a job of the kind ``TICK``: enqueue the polls that are due now."""
        del job
        progress(0, 0, "finding sources that are due")
        return {"polls": self.due()}

    def poll(self, job: JobRecord, progress: Progress) -> Mapping[str, Any] | CommitHook:
        """Carry out a job of the kind ``POLL``: compare one hub's listing."""
        started = self._now()
        with self._database.reading() as session:
            try:
                source = self._source_service.open(session, job.tenant, job.parameters["source"])
            except SourceNotFound:
                return _DELETED
            seen = {model.name: model for model in source_models.seen_models(session, source.id)}
        try:
            with self._hub_of(source) as hub:
                listing = _with_progress(hub.models(source.filters.to_json()), progress)
                found = compare(source, listing, seen)
                _look_up_unlisted(hub, found, seen, progress)
        except JobCancelled:
            raise
        except ModelkinError as error:
            with self._database.writing() as session:
                sources.note_error(session, source.id, error.code, str(error))
            raise
        self._enqueue_syncs(job, source, found, progress)

        def finish(session: Writer) -> Mapping[str, Any]:
            try:  # every writer locks the source first, then the state of its models
                sources.lock_source(session, job.tenant, source.id)
            except SourceNotFound:
                return _DELETED
            source_models.note_listed(session, source.id, found.gone, listed=False)
            source_models.note_listed(session, source.id, found.back, listed=True)
            source_models.note_tags(session, source.id, found.tags)
            fingerprint_states.note_changes(session, source.id, found.dates)
            sources.note_poll(session, source.id, started, found.to_json())
            return found.to_json()

        return finish

    def _enqueue_syncs(
        self, job: JobRecord, source: OpenSource, found: ListingDiff, progress: Progress
    ) -> None:
        """Enqueue the syncs; a retried poll enqueues none twice while the first one waits."""
        models, gone = list(found.to_sync()), set(found.gone)
        for start in range(0, len(models), _BATCH_SIZE):
            progress(start, len(models), "enqueueing syncs")
            with self._database.writing() as session:
                # Hub events lock in the same order, so the two cannot deadlock.
                sources.lock_source(session, job.tenant, source.id)
                for name, revision in models[start : start + _BATCH_SIZE]:
                    self._sync.sync_model(
                        session,
                        job.tenant,
                        source.id,
                        name,
                        space=source.space,
                        revision=revision,
                        gone=name in gone,
                    )


class _Decision(Enum):
    """The decision of a poll about a line of a listing."""

    SKIP = auto()
    """Do nothing: the source does not follow the model, or there is nothing to read yet."""
    COUNT_UNNAMABLE = auto()
    SYNC_NEW = auto()
    SYNC_CHANGED = auto()
    KEEP = auto()


def compare(
    source: OpenSource, listing: Iterator[HubModel], seen: Mapping[str, SeenModel]
) -> ListingDiff:
    """Compare a listing with the last known state of the hub's models.

    Args:
        source: the source, whose filters decide which lines are followed.
        seen: the known models by name; a model without a revision is gone, or was never seen.
    """
    found = ListingDiff()
    listed: set[str] = set()
    absent = set(source.filters.named_owners or ())
    for line in listing:
        absent.discard(line.name.partition("/")[0])
        if line.name in listed:
            continue
        before = seen.get(line.name)
        decision = _decide(source, line, before)
        if decision is _Decision.COUNT_UNNAMABLE:
            found.unnamable += 1
            if len(found.unnamable_models) < _MAX_NAMED:
                found.unnamable_models[line.name[:_MAX_SHOWN]] = unnamable(line.name) or ""
        elif decision is not _Decision.SKIP:
            listed.add(line.name)
            _note(found, line, before, decision)
    found.models = len(listed)
    found.absent_owners = sorted(absent)[:_MAX_NAMED]
    missing = [
        model for name, model in seen.items() if name not in listed and model.revision is not None
    ]
    found.gone = [model.name for model in missing if model.listed]
    found.unlisted = [model.name for model in missing if model.placed and not model.listed]
    return found


def _decide(source: OpenSource, line: HubModel, before: SeenModel | None) -> _Decision:
    """Decide about a line; stored models stay followed whatever filters say."""
    is_placed = before is not None and before.placed
    if not is_placed and source.filters.reason_against(line.name, line.tags):
        return _Decision.SKIP
    if before is None and line.unreleased:
        return _Decision.SKIP
    if unnamable(line.name):
        return _Decision.COUNT_UNNAMABLE
    if before is None:
        return _Decision.SYNC_NEW
    is_same = line.revision is not None and line.revision == before.revision
    if is_same and (before.tags is None or not _has_other_tags(line, before)):
        return _Decision.KEEP
    return _Decision.SYNC_CHANGED


def _has_other_tags(line: HubModel, before: SeenModel) -> bool:
    """Whether tags that may change without a new revision are not those seen last."""
    return line.mutable_tags and before.tags != line.tags_digest


def _note(
    found: ListingDiff, line: HubModel, before: SeenModel | None, decision: _Decision
) -> None:
    """Record a followed line; tags that were never seen are recorded, and cause no sync."""
    if decision is _Decision.SYNC_NEW:
        found.new[line.name] = line.revision
    if decision is _Decision.SYNC_CHANGED:
        found.changed[line.name] = line.revision
    if before is not None and not before.listed:
        found.back.append(line.name)
    if before is not None and line.changed_at not in (None, before.changed_at):
        found.dates[line.name] = line.changed_at
    if before is not None and _has_other_tags(line, before):
        found.tags[line.name] = line.tags_digest


def _look_up_unlisted(
    hub: Hub, found: ListingDiff, seen: Mapping[str, SeenModel], progress: Progress
) -> None:
    """Look up stored models that the listing lacks: they may be hidden, or have new revisions."""
    names = random.sample(found.unlisted, min(len(found.unlisted), _MAX_UNLISTED))
    for number, name in enumerate(names):
        progress(number, len(names), "asking for models that are no longer listed")
        try:
            now = hub.look_up(name)
        except HubNotFound as error:
            if error.definitive:  # else its last sync has said so, too
                found.gone.append(name)
        except (HubForbidden, HubProtocolError):
            continue  # as at its last sync
        else:
            if now.revision != seen[name].revision:
                found.changed[name] = now.revision


def _with_progress(listing: Iterator[HubModel], progress: Progress) -> Iterator[HubModel]:
    """Yield the lines, with progress reported every hundred."""
    progress(0, 0, "listing models")
    for number, line in enumerate(listing):
        if number % _BATCH_SIZE == 0:
            progress(number, 0, "listing models")
        yield line
