"""``Announcements``: the deliveries of events themselves, before any is compared.

They are written for many events at a time, so they wait for no comparison of an earlier event.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from cachetools import LRUCache

from app.infra.db.database import Database, Writer
from app.jobs.service import JobService
from app.webhooks.delivery import new_delivery, schedule_sending
from app.webhooks.outbox import LINEAGE_MISMATCH, LINES_CHANGED, NEIGHBORS_CHANGED
from app.webhooks.repositories import deliveries as delivery_repository
from app.webhooks.repositories import events as event_repository
from app.webhooks.repositories import subscriptions
from app.webhooks.repositories.deliveries import Delivery
from app.webhooks.repositories.subscriptions import Subscription

__all__ = ["Announcements", "Notice", "delivery_of", "matches", "own_notices", "watches"]

_BATCH_SIZE: Final = 50
_ANNOUNCED_AHEAD: Final = 2_000
"""The most events of a space with deliveries written before earlier events are compared."""
_MAX_ANNOUNCED: Final = 20_000
"""The most events whose own deliveries this process remembers to be written; it looks others up."""
_DERIVED: Final = frozenset({NEIGHBORS_CHANGED, LINEAGE_MISMATCH})

Notice = tuple[Subscription, str, Mapping[str, Any]]
"""The subscription, the type and the data of a delivery."""


class Announcements:
    """The deliveries of events themselves, and which events have theirs.

    Args:
        database: the database of events and deliveries.
        jobs: the queue, for the jobs that send.
    """

    def __init__(self, database: Database, jobs: JobService) -> None:
        self._database = database
        self._jobs = jobs
        self._written: LRUCache[str, None] = LRUCache(_MAX_ANNOUNCED)
        self._lock = threading.Lock()

    def announce(self, tenant_id: int, space_id: int | None) -> None:
        """Write the deliveries of waiting events, and mark the events that lead to no other.

        A delivery may be deleted before its event is compared: the quota of deliveries may be low.
        So this process remembers the events, and writes no second delivery.
        """
        with self._database.reading() as session:
            ids = event_repository.pending_ids(session, tenant_id, space_id, limit=_ANNOUNCED_AHEAD)
        fresh = [each for each in ids if not self.includes(each)]
        for start in range(0, len(fresh), _BATCH_SIZE):
            some = fresh[start : start + _BATCH_SIZE]
            with self._database.writing() as session:
                self._write(session, event_repository.lock_pending(session, some))
            with self._lock:
                self._written.update(dict.fromkeys(some))

    def _write(self, session: Writer, events: Sequence[event_repository.Event]) -> None:
        subscribed: dict[str, list[Subscription]] = {}
        deliveries: list[Delivery] = []
        for event in events:
            if event.space not in subscribed:
                subscribed[event.space] = subscriptions.subscriptions_to_space(
                    session, event.tenant_id, event.space
                )
            here = subscribed[event.space]
            deliveries += [delivery_of(notice, event) for notice in own_notices(event, here)]
            if event.type != LINES_CHANGED and (
                event.model_id is None or not any(_DERIVED & {*s.events} for s in here)
            ):
                event_repository.mark_fanned_out(session, event)
        if delivery_repository.insert_deliveries(session, deliveries):
            schedule_sending(session, self._jobs)

    def includes(self, event_id: str) -> bool:
        """Whether the deliveries of an event itself are written."""
        with self._lock:
            return event_id in self._written


def own_notices(event: event_repository.Event, here: Sequence[Subscription]) -> list[Notice]:
    """The notices of an event itself, without those derived from it."""
    return [(s, event.type, event.data) for s in here if matches(s, event, event.type)]


def delivery_of(notice: Notice, event: event_repository.Event) -> Delivery:
    """The delivery of a notice about an event."""
    subscription, event_type, data = notice
    return new_delivery(subscription, event.id, event_type, _body(event_type, event, data))


def matches(subscription: Subscription, event: event_repository.Event, event_type: str) -> bool:
    """Whether a subscription to the event's space matches it, as an event of some type."""
    if event_type not in subscription.events:
        return False
    return event.model is None or watches(subscription, event.model, event.tags)


def watches(subscription: Subscription, name: str, tags: Collection[str]) -> bool:
    """Whether the filters of a subscription match a model."""
    return subscription.model in {None, name} and (
        subscription.tag is None or subscription.tag in tags
    )


def _body(event_type: str, event: event_repository.Event, data: Mapping[str, Any]) -> bytes:
    """The bytes that are sent; the timestamp is that of the change."""
    payload = {
        "type": event_type,
        "timestamp": event.created_at.isoformat().replace("+00:00", "Z"),
        "data": {"event": event.id, **data},
    }
    return json.dumps(payload, ensure_ascii=False, separators=(",", ":")).encode()
