"""Telling: who hears of an event, and what else follows from it; a job for each space's events.

Everything that it finds out it writes in one transaction, with the event's mark that it was told:
a delivery for each subscription that hears of it, once. Nothing is sent from here. Where something
cannot be found out now, that event waits, and the others are told meanwhile.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from urllib.parse import quote

from app.auth.records import Tenant
from app.catalog.records import ModelRecord
from app.catalog.repositories import models
from app.errors import ModelNotFound, Unavailable
from app.infra.db.database import Database, Reader, Writer
from app.jobs.records import JobRecord
from app.jobs.service import SERVICE, CommitHook, JobService, Progress
from app.kinship.lineage import LineageService
from app.notifications.neighbor_changes import Change, ChangeSet, NeighborChanges
from app.spaces import repository as spaces
from app.spaces.records import SpaceRecord
from app.webhooks import delivery_repository, event_repository
from app.webhooks import repository as subscriptions
from app.webhooks.delivery import new_delivery, wake
from app.webhooks.outbox import (
    KIND,
    LINEAGE_MISMATCH,
    NEIGHBORS_CHANGED,
    SUPPORT_STORED,
    dedup_key,
)
from app.webhooks.repository import Subscription

__all__ = ["EVERY", "MOST_TOLD", "EventFanOut"]

MOST_TOLD: Final = 100
"""Neighbours in one event; how many more there are is said."""
_SLICE: Final = 15.0
"""Seconds after which the job lets others have its place, and is enqueued again."""
_AT_ONCE: Final = 50
_ATTEMPTS: Final = 3
"""Times that a bug may keep an event from being told, before it is told without what follows."""
_PATIENCE: Final = timedelta(days=1)
"""Age up to which an event waits for a store that is away, before it is told without that."""
_SHORTEST, _LONGEST = timedelta(seconds=5), timedelta(minutes=10)
"""Between two tries; as long as the event is old, but for these."""
EVERY: Final = timedelta(seconds=5)
_LATE: Final = timedelta(seconds=5)
"""An event that waits so long has nobody under way to it: such are looked for."""

log = logging.getLogger(__name__)

_Wanted = tuple[Subscription, str, Mapping[str, Any]]
_Followed = tuple[ChangeSet | None, list[_Wanted]]


@dataclass(frozen=True, slots=True)
class _Later:
    """When an event is tried again, and whether it is one of few times."""

    at: datetime
    counts: bool


class EventFanOut:
    """Finds out who hears of what.

    Args:
        database: the truth.
        jobs: carry this out; the kind is registered here.
        crossings: compares neighbours with those before.
        lineage: holds declared bases against what is measured.
    """

    def __init__(
        self,
        database: Database,
        jobs: JobService,
        crossings: NeighborChanges,
        lineage: LineageService,
    ) -> None:
        self._database = database
        self._jobs = jobs
        self._crossings = crossings
        self._lineage = lineage

    def any_late(self, session: Reader) -> bool:
        """Whether an event waits that nobody is under way to."""
        return event_repository.any_overdue(session, datetime.now(UTC) - _LATE)

    def execute(self, job: JobRecord, progress: Progress) -> CommitHook:
        """Tell the events of a space; see to it that somebody does where the job is nobody's."""
        if job.tenant.name == SERVICE:
            return self._wake_late
        until, told = time.monotonic() + _SLICE, 0
        for event in self._waiting(job, until):
            progress(told, 0, "telling")
            self.tell(event)
            told += 1

        def finish(session: Writer) -> Mapping[str, Any]:
            # What was written down while this one was about to end may have found its key taken.
            if event_repository.events_to_fan_out(
                session, job.tenant.id, job.space_id, datetime.now(UTC), limit=1
            ):
                again = not job.parameters.get("again", False)
                self._enqueue(session, job.tenant, job.space_id, again=again)
            return {"told": told}

        return finish

    def _wake_late(self, session: Writer) -> Mapping[str, Any]:
        """A job for each space of which an event is late, unless it has one."""
        late = event_repository.overdue_spaces(session, datetime.now(UTC) - _LATE)
        for tenant, space_id in late:
            self._enqueue(session, tenant, space_id)
        return {"spaces": len(late)}

    def _enqueue(
        self, session: Writer, tenant: Tenant, space_id: int | None, *, again: bool = False
    ) -> None:
        """A job for the events of a space; all of the tenant where there is no such space.

        Args:
            again: beside the one that has the other key.
        """
        space = spaces.find_space_by_id(session, space_id or 0)
        key = dedup_key(None if space is None else space.id, again=again)
        parameters = {"again": True} if again else {}
        self._jobs.enqueue(session, tenant, KIND, parameters, space=space, dedup_key=key)

    def _waiting(self, job: JobRecord, until: float) -> Iterator[event_repository.Event]:
        """What is to be told, for as long as there is time."""
        while True:
            with self._database.reading() as session:
                now = datetime.now(UTC)
                waiting = event_repository.events_to_fan_out(
                    session, job.tenant.id, job.space_id, now, limit=_AT_ONCE
                )
            for event in waiting:
                if time.monotonic() >= until:
                    return
                yield event
            if not waiting:
                return

    def tell(self, event: event_repository.Event) -> None:
        """Write down the deliveries of one event; where not all that follows from it could be found
        out, those that are known, and when the others are tried again.
        """
        with self._database.reading() as session:
            found = event_repository.find_pending(session, event)  # as it is after those before it
            if found is None:
                return
            event = found
            here = subscriptions.find_listeners(session, event.tenant_id, event.space)
            model = None
            if event.model_id is not None:  # by its id: it may have another name by now
                model = models.models_by_id(session, [event.model_id]).get(event.model_id)
        wanted: list[_Wanted] = [
            (s, event.type, event.data) for s in here if _hears(s, event, event.type)
        ]
        compared, later = None, None
        if model is not None:
            try:
                compared, more = self._follow(event, model, here)
                wanted += more
            except Exception as error:
                later = _again(event, error)
        with self._database.writing() as session:
            now = event_repository.find_pending(session, event, lock=True)
            if now is None or now.neighbors_compared != event.neighbors_compared:
                return
            if compared is not None and not self._crossings.holds(session, compared):
                return  # told by somebody else meanwhile: it is looked at once more
            deliveries = [
                new_delivery(subscription, event.id, kind, _body(kind, event, data))
                for subscription, kind, data in wanted
            ]
            if delivery_repository.insert_deliveries(session, deliveries):
                wake(session, self._jobs)
            if later is not None:
                event_repository.put_off(session, event, later.at, counts=later.counts)
                return
            if compared is not None:
                event_repository.mark_compared(session, event, compared.model.revision)
            event_repository.mark_fanned_out(session, event)

    def _follow(
        self, event: event_repository.Event, model: ModelRecord, here: Sequence[Subscription]
    ) -> _Followed:
        with self._database.reading() as session:
            space = spaces.find_space_by_id(session, event.space_id)
        if space is None:
            return None, []
        compared, wanted = None, list[_Wanted]()
        if event.type == SUPPORT_STORED and not event.neighbors_compared:
            compared, wanted = self._neighbors(space, event, model, here)
        judged = [s for s in here if _hears(s, event, LINEAGE_MISMATCH)]
        if judged and model.base_model is not None:
            with self._database.reading() as session:
                followed = event_repository.is_followed(session, event)
            if not followed:
                wanted += self._mismatches(space, model.name, judged)
        return compared, wanted

    def _neighbors(
        self,
        space: SpaceRecord,
        event: event_repository.Event,
        model: ModelRecord,
        here: Sequence[Subscription],
    ) -> _Followed:
        """The crossings of this event, and of those of its model that are told with it."""
        with self._database.reading() as session:
            first, heard = self._together(session, event, model.revision, here)
        if not heard:
            return None, []
        # Of all who might hear, since what comes meanwhile is told with it as well.
        lowest = min(_threshold(s) for s in here if NEIGHBORS_CHANGED in s.events)
        changes = self._crossings.changes(space, model, first, lowest)
        if changes is None:
            return None, []
        with self._database.reading() as session:
            _, heard = self._together(session, event, changes.model.revision, here)
        told = [(s, _changed(space, changes, _threshold(s))) for s in heard]
        return changes, [(s, NEIGHBORS_CHANGED, data) for s, data in told if data]

    def _together(
        self,
        session: Reader,
        event: event_repository.Event,
        revision: int,
        here: Sequence[Subscription],
    ) -> tuple[int, list[Subscription]]:
        """The first revision of the changes that are told as one, and who hears of any of them."""
        waiting = event_repository.uncompared_events(session, event, revision)
        first = min(one.revision or 1 for one in (event, *waiting))
        heard = [
            s for s in here if any(_hears(s, one, NEIGHBORS_CHANGED) for one in (event, *waiting))
        ]
        return first, heard

    def _mismatches(
        self, space: SpaceRecord, name: str, judged: Sequence[Subscription]
    ) -> list[_Wanted]:
        with self._database.reading() as session:
            try:
                found = self._lineage.lineage(session, space, name)
                model = models.get_model(session, space, name)
            except ModelNotFound:
                return []
        if found.verdict != "mismatch":
            return []
        data = {
            "space": space.name,
            "model": found.model,
            "revision": model.revision,
            "version": model.version,
            "declared_base": found.declared_base,
            "similarity": None if found.base is None else found.base.similarity,
            "likely_base": found.likely_base,
            "summary": found.summary,
            "url": f"/v1/spaces/{space.name}/lineage?model={quote(found.model, safe='/')}",
        }
        return [(subscription, LINEAGE_MISMATCH, data) for subscription in judged]


def _hears(subscription: Subscription, event: event_repository.Event, kind: str) -> bool:
    """Whether a subscription of the event's space hears what follows from it."""
    if kind not in subscription.events:
        return False
    return event.model is None or (
        subscription.model in {None, event.model}
        and (subscription.tag is None or subscription.tag in event.tags)
    )


def _again(event: event_repository.Event, error: Exception) -> _Later | None:
    """When to look again for what follows from an event; None where that makes no sense."""
    now = datetime.now(UTC)
    age, is_away = now - event.created_at, isinstance(error, Unavailable)
    if age >= _PATIENCE if is_away else event.failures + 1 >= _ATTEMPTS:
        log.error("what follows from event %s is not told", event.id, exc_info=error)
        return None
    pause = min(max(age, _SHORTEST), _LONGEST)
    log.warning(
        "what follows from event %s is looked for again in %.0f s: %s",
        event.id,
        pause.total_seconds(),
        error,
        exc_info=not is_away,
    )
    return _Later(now + pause, counts=not is_away)


def _threshold(subscription: Subscription) -> float:
    assert subscription.threshold is not None
    return subscription.threshold


def _changed(space: SpaceRecord, changes: ChangeSet, threshold: float) -> dict[str, Any] | None:
    """What is said of those who crossed a threshold; None where nobody did."""
    crossed = [(item, way) for item in changes.items if (way := item.crossed(threshold))]
    if not crossed:
        return None
    return {
        "space": space.name,
        "model": changes.model.name,
        "revision": changes.model.revision,
        "previous_revision": changes.previous,
        "version": changes.model.version,
        "threshold": threshold,
        "changes": [_line(item, way) for item, way in crossed[:MOST_TOLD]],
        "more": max(0, len(crossed) - MOST_TOLD),
    }


def _line(item: Change, way: str) -> dict[str, Any]:
    return {
        "model": item.model,
        "crossed": way,
        "similarity": round(item.similarity, 6),
        "previous": None if item.previous is None else round(item.previous, 6),
        "estimate": item.estimate,
    }


def _body(kind: str, event: event_repository.Event, data: Mapping[str, Any]) -> bytes:
    """What is sent, byte by byte: the time is that of the change."""
    told = {
        "type": kind,
        "timestamp": event.created_at.isoformat().replace("+00:00", "Z"),
        "data": {"event": event.id, **data},
    }
    return json.dumps(told, ensure_ascii=False, separators=(",", ":")).encode()
