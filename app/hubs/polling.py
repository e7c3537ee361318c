"""Polls: hubs are looked through every so often, since deliveries get lost.

What a hub lists is held against what was seen there last: what is new, has changed or is gone is
looked at by a job each, as if it had been delivered. Nothing is downloaded or stored here.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from app.errors import HubForbidden, HubNotFound, HubProtocolError, SourceNotFound
from app.hubs.clients.protocol import Hub, HubModel
from app.hubs.filters import unnamable
from app.hubs.records import SeenModel
from app.hubs.repositories import source_models, sources
from app.hubs.service import OpenSource, SourceService
from app.hubs.sync_requests import SyncScheduler
from app.infra.db.database import Database, Reader, Writer
from app.jobs.records import JobRecord
from app.jobs.service import CommitHook, Progress
from modelkin.errors import JobCancelled, ModelkinError

__all__ = ["TICK", "ListingDiff", "HubPoller", "compare"]

TICK: Final = "source_polls"
"""The kind of the periodic jobs that see which sources are due."""
_SOURCES = 100
"""Sources that become due at a time; the others do with the next tick."""
_MOST_HIDDEN = 1000
"""Models that are asked for one by one; of more, others each time."""
_DELETED: Final = {"outcome": "ignored", "reason": "the source was deleted"}
_AT_ONCE = 100
"""Looks that are enqueued in one transaction, so that others may write in between."""


@dataclass(slots=True)
class ListingDiff:
    """What a listing says, held against what was seen.

    Attributes:
        models: how many are listed and followed.
        new, changed, gone: names of those that are to be looked at.
        back: of those that were missing in the listing before.
        hidden: of those that are stored here and were missing before: the hub is asked for each.
        unnamable: how many have names that no model can have here.
    """

    models: int = 0
    new: dict[str, str | None] = field(default_factory=dict)
    changed: dict[str, str | None] = field(default_factory=dict)
    gone: list[str] = field(default_factory=list)
    back: list[str] = field(default_factory=list)
    hidden: list[str] = field(default_factory=list)
    unnamable: int = 0

    def looks(self) -> Iterator[tuple[str, str | None]]:
        """Whom to look at, and what the listing says that they are at."""
        yield from self.new.items()
        yield from self.changed.items()
        yield from ((name, None) for name in self.gone)

    def to_json(self) -> dict[str, int]:
        """The numbers, for people."""
        told = {name: len(getattr(self, name)) for name in ("new", "changed", "gone")}
        return {"models": self.models, **told, "unnamable": self.unnamable}


class HubPoller:
    """The use cases of polls.

    Args:
        database: the truth.
        jobs: the kinds are registered here.
        looks: sends somebody to look.
        opened: whose hubs they are.
        hub_of: opens the hub of a source.
        now: the time.
    """

    def __init__(
        self,
        database: Database,
        looks: SyncScheduler,
        opened: SourceService,
        hub_of: Callable[[OpenSource], AbstractContextManager[Hub]],
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._database = database
        self._looks = looks
        self._opened = opened
        self._hub_of = hub_of
        self._now = now

    def due(self) -> int:
        """Enqueue the polls that are due now; how many."""
        with self._database.writing() as session:
            now = self._now()
            found = sources.due_sources(session, now, limit=_SOURCES)
            for source in found:
                self._looks.sync_hub(session, source.tenant, source.id, in_time=True)
                sources.put_off_poll(session, source, now)
        return len(found)

    def any_due(self, session: Reader) -> bool:
        """Whether the poll of a source is due."""
        return sources.any_due(session, self._now())

    def enqueue_due(self, job: JobRecord, progress: Progress) -> Mapping[str, Any]:
        """Carry out a job of the kind ``TICK``: enqueue the polls that are due now."""
        del job
        progress(0, 0, "looking for sources that are due")
        return {"polls": self.due()}

    def poll(self, job: JobRecord, progress: Progress) -> Mapping[str, Any] | CommitHook:
        """Look through one hub."""
        began = self._now()
        with self._database.reading() as session:
            try:
                source = self._opened.open(session, job.tenant, job.parameters["source"])
            except SourceNotFound:
                return _DELETED
            seen = {model.name: model for model in source_models.seen_models(session, source.id)}
        try:
            with self._hub_of(source) as hub:
                listing = _told(hub.models(source.filters.to_json()), progress)
                found = compare(source, listing, seen)
                _ask_for_hidden(hub, found, seen, progress)
        except JobCancelled:
            raise
        except ModelkinError as error:
            with self._database.writing() as session:
                sources.note_error(session, source.id, error.code, str(error))
            raise
        self._send(job, source, found, progress)

        def finish(session: Writer) -> Mapping[str, Any]:
            try:  # locked first, as by all who change a source and then what was seen there
                sources.lock_source(session, job.tenant, source.id)
            except SourceNotFound:
                return _DELETED
            source_models.note_listed(session, source.id, found.gone, listed=False)
            source_models.note_listed(session, source.id, found.back, listed=True)
            sources.note_poll(session, source.id, began, found.to_json())
            return found.to_json()

        return finish

    def _send(
        self, job: JobRecord, source: OpenSource, found: ListingDiff, progress: Progress
    ) -> None:
        """Enqueue the looks; done again, none is enqueued twice while the first one waits."""
        looks, gone = list(found.looks()), set(found.gone)
        for begin in range(0, len(looks), _AT_ONCE):
            progress(begin, len(looks), "sending to look")
            with self._database.writing() as session:
                # The order of locks that deliveries have: two would else wait for each other.
                sources.lock_source(session, job.tenant, source.id)
                for name, revision in looks[begin : begin + _AT_ONCE]:
                    self._looks.sync_model(
                        session,
                        job.tenant,
                        source.id,
                        name,
                        revision=revision,
                        gone=name in gone,
                    )


def compare(
    source: OpenSource, listing: Iterator[HubModel], seen: Mapping[str, SeenModel]
) -> ListingDiff:
    """Hold a listing against what was seen.

    Args:
        source: decides which lines are followed.
        seen: by name. One without a revision is gone, or was never seen.
    """
    found = ListingDiff()
    listed: set[str] = set()
    for line in listing:
        before = seen.get(line.name)
        if line.name in listed:
            continue
        is_placed = before is not None and before.placed  # and so followed, whatever it lost
        if not is_placed and source.filters.reason_against(line.name, line.tags):
            continue
        if before is None and source.kind == "mlflow" and line.revision is None:
            continue  # registered, and no version is there yet
        if unnamable(line.name):
            found.unnamable += 1
            continue
        listed.add(line.name)
        if before is None:
            found.new[line.name] = line.revision
            continue
        if not before.listed:
            found.back.append(line.name)
        if line.revision is None or line.revision != before.revision:
            found.changed[line.name] = line.revision
    found.models = len(listed)
    found.gone = [
        model.name
        for model in seen.values()
        if model.name not in listed and model.listed and model.revision is not None
    ]
    found.hidden = [
        model.name
        for model in seen.values()
        if model.name not in listed
        and not model.listed
        and model.placed
        and model.revision is not None
    ]
    return found


def _ask_for_hidden(
    hub: Hub, found: ListingDiff, seen: Mapping[str, SeenModel], progress: Progress
) -> None:
    """What the hub does not list by the source's filters, and has: it may have changed, too."""
    asked = random.sample(found.hidden, min(len(found.hidden), _MOST_HIDDEN))
    for number, name in enumerate(asked):
        progress(number, len(asked), "asking for models that are not listed any more")
        try:
            now = hub.look_up(name)
        except HubNotFound as error:
            if error.definitive:  # else its last look has said so, too
                found.gone.append(name)
        except (HubForbidden, HubProtocolError):
            continue  # as it was when it was looked at
        else:
            if now.revision != seen[name].revision:
                found.changed[name] = now.revision


def _told(listing: Iterator[HubModel], progress: Progress) -> Iterator[HubModel]:
    """The same lines, with a word of progress now and then."""
    progress(0, 0, "listing models")
    for number, line in enumerate(listing):
        if number % _AT_ONCE == 0:
            progress(number, 0, "listing models")
        yield line
