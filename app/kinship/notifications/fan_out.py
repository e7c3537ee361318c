"""``EventFanOut``: creates a delivery for each subscription that matches an event.

The deliveries of an event itself come first, for many events at a time. A stored support may also
lead to events about its neighbours and its lineage, which take long to compute: no other event
waits for them. The transaction that writes them marks the event. ``webhooks`` sends all deliveries.
If a store is unavailable the event is retried later, and the other events go on. Each space has its
own job.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from urllib.parse import quote

from app.infra.db.database import Database, Reader, Writer
from app.infra.errors import ModelNotFound, Unavailable
from app.jobs.records import JobRecord
from app.jobs.service import SERVICE, CommitHook, JobService, Progress, Unfinished
from app.kinship.lineage import LineageService
from app.kinship.notifications.announcements import (
    Announcements,
    Notice,
    delivery_of,
    matches,
    own_notices,
)
from app.kinship.notifications.base_changes import BaseChanges
from app.kinship.notifications.line_checks import LineChecks
from app.kinship.notifications.neighbor_changes import ChangeSet, NeighborChanges
from app.kinship.notifications.payloads import mismatch_data, neighbor_data, threshold_of
from app.models.catalog.records import ModelRecord
from app.models.catalog.repositories import models
from app.models.catalog.repositories.candidates import candidates_by_name
from app.models.spaces.records import SpaceRecord
from app.models.spaces.repositories import spaces
from app.tenancy.auth.records import Tenant
from app.webhooks.delivery import schedule_sending
from app.webhooks.outbox import (
    JOB_KIND,
    LINEAGE_MISMATCH,
    LINES_CHANGED,
    NEIGHBORS_CHANGED,
    NO_SPACE_ID,
    SUPPORT_STORED,
    Outbox,
    dedup_key,
    enqueue_of_tenant,
)
from app.webhooks.repositories import deliveries as delivery_repository
from app.webhooks.repositories import events as event_repository
from app.webhooks.repositories import subscriptions
from app.webhooks.repositories.subscriptions import Subscription

__all__ = ["CHECK_INTERVAL", "TIME_SLICE_S", "EventFanOut"]

TIME_SLICE_S = 3.0
"""Seconds after which the job is queued again, so that other jobs get its place."""
_BATCH_SIZE: Final = 50
_ANNOUNCEMENT_INTERVAL_S: Final = 1.0
_MAX_ATTEMPTS: Final = 3
"""Attempts that a bug may spoil; then the event goes out without its derived events."""
_MAX_WAIT: Final = timedelta(days=1)
"""The longest wait of an event for an unavailable store; then it is sent without derived events."""
_MIN_RETRY_DELAY, _MAX_RETRY_DELAY = timedelta(seconds=5), timedelta(minutes=10)
"""The bounds of the delay between two attempts, which is the age of the event."""
CHECK_INTERVAL: Final = timedelta(seconds=5)
"""The interval in which the workers check for overdue events."""
_OVERDUE_AFTER: Final = timedelta(seconds=5)
"""The age of a pending event after which its job must have been lost."""

log = logging.getLogger(__name__)

_Derived = tuple[ChangeSet | None, list[Notice]]


@dataclass(frozen=True, slots=True)
class _Retry:
    """The next try of an event's fan-out, and whether the failed attempt counts."""

    at: datetime
    counts: bool


class EventFanOut:
    """Create a delivery for each subscription that matches an event.

    Args:
        database: the database of events and deliveries.
        jobs: the queue, for further fan-out jobs.
        neighbor_changes: compares the neighbours of a model with those of an earlier revision.
        lineage: compares declared bases with measured similarities.
        line_checks: compares those of fingerprints with lines in common.
    """

    def __init__(
        self,
        database: Database,
        jobs: JobService,
        neighbor_changes: NeighborChanges,
        lineage: LineageService,
        line_checks: LineChecks,
    ) -> None:
        self._database = database
        self._jobs = jobs
        self._neighbor_changes = neighbor_changes
        self._lineage = lineage
        self._line_checks = line_checks
        self._announcements = Announcements(database, jobs)
        self._base_changes = BaseChanges(Outbox(jobs))

    def any_overdue(self, session: Reader) -> bool:
        """Whether an event is pending for so long that its job must have been lost."""
        return event_repository.any_overdue(session, datetime.now(UTC) - _OVERDUE_AFTER)

    def execute(self, job: JobRecord, progress: Progress) -> CommitHook:
        """Fan out the events of a space. A job of the service enqueues this for overdue events."""
        if job.tenant.name == SERVICE:
            return self._enqueue_overdue
        until, done, space_id = time.monotonic() + TIME_SLICE_S, 0, _space_of(job)
        for event in self._pending(job.tenant, space_id, until):
            progress(done, 0, "fanning out events")
            self.fan_out(event)
            done += 1

        def finish(session: Writer) -> Mapping[str, Any]:
            # An event written meanwhile got no other job: this one has the key.
            if event_repository.events_to_fan_out(
                session, job.tenant.id, space_id, datetime.now(UTC), limit=1
            ):
                raise Unfinished
            return {"told": done}

        return finish

    def _enqueue_overdue(self, session: Writer) -> Mapping[str, Any]:
        """Enqueue a job for each space with an overdue event, unless it has one."""
        overdue = event_repository.overdue_spaces(session, datetime.now(UTC) - _OVERDUE_AFTER)
        for tenant, space_id in overdue:
            self._enqueue(session, tenant, space_id)
        return {"spaces": len(overdue)}

    def _enqueue(self, session: Writer, tenant: Tenant, space_id: int | None) -> None:
        """Enqueue a job for the events of a space, or of the whole tenant if the space is gone."""
        if space_id == NO_SPACE_ID:
            enqueue_of_tenant(session, self._jobs, tenant)
            return
        space = spaces.find_space_by_id(session, space_id or 0)
        key = dedup_key(None if space is None else space.id)
        self._jobs.enqueue(session, tenant, JOB_KIND, {}, space=space, dedup_key=key)

    def _pending(
        self, tenant: Tenant, space_id: int | None, until: float
    ) -> Iterator[event_repository.Event]:
        """The events to fan out, until the time slice ends."""
        next_announcement = 0.0
        while True:
            with self._database.reading() as session:
                now = datetime.now(UTC)
                waiting = event_repository.events_to_fan_out(
                    session, tenant.id, space_id, now, limit=_BATCH_SIZE
                )
            for event in waiting:
                if time.monotonic() >= next_announcement:
                    self._announcements.announce(tenant.id, space_id)
                    next_announcement = time.monotonic() + _ANNOUNCEMENT_INTERVAL_S
                yield event
                if time.monotonic() >= until:
                    return
            if not waiting:
                return

    def fan_out(self, event: event_repository.Event) -> None:
        """Write the deliveries of one event, and of the events derived from it.

        If the derived events cannot be computed now, write the other deliveries and schedule a
        retry.
        """
        with self._database.reading() as session:
            found = event_repository.find_pending(session, event)
            if found is None:  # an earlier one has covered it
                return
            event = found
            here = subscriptions.subscriptions_to_space(session, event.tenant_id, event.space)
            model = None
            if event.model_id is not None:  # by id, since the model may have been renamed
                model = models.models_by_id(session, [event.model_id]).get(event.model_id)
        notices = [] if self._announcements.includes(event.id) else own_notices(event, here)
        compared, retry = None, None
        try:
            compared, derived = self._derive(event, model, here)
            notices += derived
        except Exception as error:
            retry = _retry_after(event, error)
        with self._database.writing() as session:
            now = event_repository.find_pending(session, event, lock=True)
            if now is None or now.neighbors_compared != event.neighbors_compared:
                return
            if compared is not None and not self._neighbor_changes.is_current(session, compared):
                return  # another worker has fanned out a change that this compares: start again
            deliveries = [delivery_of(notice, event) for notice in notices]
            if delivery_repository.insert_deliveries(session, deliveries):
                schedule_sending(session, self._jobs)
            if retry is not None:
                event_repository.put_off(session, event, retry.at, counts=retry.counts)
                return
            self._follow_up(session, event, model, compared, here)
            event_repository.mark_fanned_out(session, event)

    def _follow_up(
        self,
        session: Writer,
        event: event_repository.Event,
        model: ModelRecord | None,
        compared: ChangeSet | None,
        here: Sequence[Subscription],
    ) -> None:
        """Mark what a comparison covers, and write the events that check other lineages again."""
        if compared is not None:
            self._cover(session, event, compared.model.revision, here)
        if model is not None and any(LINEAGE_MISMATCH in s.events for s in here):
            self._base_changes.write(session, event, model)
        if event.type == LINES_CHANGED:
            self._line_checks.write(session, event)

    def _cover(
        self,
        session: Writer,
        event: event_repository.Event,
        revision: int,
        here: Sequence[Subscription],
    ) -> None:
        """Mark the model's events that its comparison covers, as done where nothing else is due."""
        covered = event_repository.uncompared_events(session, event, revision)
        event_repository.mark_compared(session, event, revision)
        if not any(LINEAGE_MISMATCH in s.events for s in here):
            for each in covered:
                if self._announcements.includes(each.id):
                    event_repository.mark_fanned_out(session, each)

    def _derive(
        self, event: event_repository.Event, model: ModelRecord | None, here: Sequence[Subscription]
    ) -> _Derived:
        """The events that follow from an event; none where its model is gone, or it has none."""
        if event.type == LINES_CHANGED:
            return None, self._line_checks.notices(event, here)
        return (None, []) if model is None else self._derive_of_model(event, model, here)

    def _derive_of_model(
        self, event: event_repository.Event, model: ModelRecord, here: Sequence[Subscription]
    ) -> _Derived:
        """The events about neighbours and lineage that follow from an event about a model."""
        with self._database.reading() as session:
            space = spaces.find_space_by_id(session, event.space_id)
        if space is None:
            return None, []
        compared, notices = None, list[Notice]()
        if event.type == SUPPORT_STORED and not event.neighbors_compared:
            compared, notices = self._neighbors(space, event, model, here)
        interested = [s for s in here if matches(s, event, LINEAGE_MISMATCH)]
        if interested and model.bases:
            with self._database.reading() as session:
                later = event_repository.is_followed(session, event)
                later = later or self._base_changes.is_due_later(session, event, model)
            if not later:
                notices += self._mismatches(space, model.name, interested)
        return compared, notices

    def _neighbors(
        self,
        space: SpaceRecord,
        event: event_repository.Event,
        model: ModelRecord,
        here: Sequence[Subscription],
    ) -> _Derived:
        """The neighbour changes of this event, and of the model's other uncompared events."""
        subscribed = [s for s in here if NEIGHBORS_CHANGED in s.events]
        with self._database.reading() as session:
            first, own = _matching(session, event, model.revision, subscribed)
            if not own and not any(_may_watch(session, space, s) for s in subscribed):
                return None, []
        # Over all subscriptions: an event that comes meanwhile may match others of them.
        lowest = min(map(threshold_of, subscribed))
        changes = self._neighbor_changes.changes(space, model, first, lowest)
        if changes is None:
            return None, []
        with self._database.reading() as session:
            _, own = _matching(session, event, changes.model.revision, subscribed)
        payloads = [(s, neighbor_data(space, changes, s, whole=s in own)) for s in subscribed]
        return changes, [(s, NEIGHBORS_CHANGED, data) for s, data in payloads if data]

    def _mismatches(
        self, space: SpaceRecord, name: str, interested: Sequence[Subscription]
    ) -> list[Notice]:
        """The events for a declared base that differs from the measured lineage."""
        with self._database.reading() as session:
            try:
                found = self._lineage.lineage(session, space, name)
                model = models.get_model(session, space, name)
            except ModelNotFound:
                return []
        if found.verdict != "mismatch":
            return []
        url = f"/v1/spaces/{space.name}/lineage?model={quote(found.model, safe='/')}"
        similarity = None if found.base is None else found.base.similarity
        data = {"space": space.name, "version": model.version}
        data |= mismatch_data(found, model.revision, url, similarity)
        return [(subscription, LINEAGE_MISMATCH, data) for subscription in interested]


def _space_of(job: JobRecord) -> int | None:
    """The space whose events a job fans out; None for all spaces of its tenant."""
    return NO_SPACE_ID if job.parameters.get("in_no_space") else job.space_id


def _retry_after(event: event_repository.Event, error: Exception) -> _Retry | None:
    """The next try of the derived events of an event; None after the last attempt."""
    now = datetime.now(UTC)
    age, is_away = now - event.created_at, isinstance(error, Unavailable)
    if age >= _MAX_WAIT if is_away else event.failures + 1 >= _MAX_ATTEMPTS:
        log.error("the events derived from event %s are not sent", event.id, exc_info=error)
        return None
    pause = min(max(age, _MIN_RETRY_DELAY), _MAX_RETRY_DELAY)
    log.warning(
        "the events derived from event %s are retried in %.0f s: %s",
        event.id,
        pause.total_seconds(),
        error,
        exc_info=not is_away,
    )
    return _Retry(now + pause, counts=not is_away)


def _matching(
    session: Reader, event: event_repository.Event, revision: int, here: Sequence[Subscription]
) -> tuple[int, list[Subscription]]:
    """The first revision of the uncompared events, and the subscriptions that match any."""
    events = (event, *event_repository.uncompared_events(session, event, revision))
    first = min(one.revision or 1 for one in events)
    return first, [s for s in here if any(matches(s, one, NEIGHBORS_CHANGED) for one in events)]


def _may_watch(session: Reader, space: SpaceRecord, subscription: Subscription) -> bool:
    """Whether the space may hold a model that the filters match; it saves a comparison."""
    wanted = subscription.model
    return wanted is None or bool(candidates_by_name(session, space, [wanted]))
