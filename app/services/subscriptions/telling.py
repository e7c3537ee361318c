"""Telling: who hears of an event, and what else follows from it; a job for each space's events.

Everything that it finds out it writes in one transaction, with the event's mark that it was told:
a delivery for each subscription that hears of it, once. Nothing is sent from here.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from urllib.parse import quote

from app.services.jobs import SERVICE, Finish, JobService, Progress
from app.services.lineage import LineageService
from app.services.subscriptions.crossings import Change, Changes, Crossings
from app.services.subscriptions.deliveries import new_delivery, wake
from app.services.subscriptions.events import (
    KIND,
    LINEAGE_MISMATCH,
    NEIGHBORS_CHANGED,
    SUPPORT_STORED,
)
from app.stores.ports import JobRecord, ModelRecord, SpaceRecord
from app.stores.sql import events, models, sent, spaces, subscriptions
from app.stores.sql.database import Database, Reader, Writer
from app.stores.sql.subscriptions import Subscription
from modelkin.errors import ModelNotFound, Unavailable

__all__ = ["MOST_TOLD", "Teller"]

MOST_TOLD: Final = 100
"""Neighbours in one event; how many more there are is said."""
_SLICE: Final = 15.0
"""Seconds after which the job lets others have its place, and is enqueued again."""
_AT_ONCE: Final = 50
_ATTEMPTS, _ATTEMPTS_AWAY = 3, 8
"""Times that what follows from an event is looked for before the event is told without that: where
there is a bug, and where a store is away.
"""
EVERY: Final = timedelta(seconds=5)
_LATE: Final = timedelta(seconds=5)
"""An event that waits so long has nobody under way to it: such are looked for."""

log = logging.getLogger(__name__)

_Whose = tuple[int, int | None]
"""A tenant's, and in which space; None for all."""
_Wanted = tuple[Subscription, str, Mapping[str, Any]]


class Teller:
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
        crossings: Crossings,
        lineage: LineageService,
    ) -> None:
        self._database = database
        self._jobs = jobs
        self._crossings = crossings
        self._lineage = lineage
        jobs.register(KIND, self._carry_out)
        jobs.every(EVERY, KIND, wanted=self._any_late)

    def _any_late(self, session: Reader) -> bool:
        """Whether an event waits that nobody is under way to."""
        return bool(events.tenant_ids_untold(session, datetime.now(UTC) - _LATE))

    def _carry_out(self, job: JobRecord, progress: Progress) -> Finish:
        """Tell the events of a space; all that wait for too long where the job is nobody's."""
        until, told = time.monotonic() + _SLICE, 0
        if job.tenant.name == SERVICE:
            with self._database.reading() as session:
                late = events.tenant_ids_untold(session, datetime.now(UTC) - _LATE)
            whose: list[_Whose] = [(tenant_id, None) for tenant_id in late]
        else:
            whose = [(job.tenant.id, job.space_id)]
        for some in whose:
            for event in self._waiting(some, until):
                progress(told, 0, "telling")
                self.tell(event)
                told += 1

        def finish(session: Writer) -> Mapping[str, Any]:
            # What was written down while this one was about to end may have found its key taken.
            if any(events.untold(session, *some, 1) for some in whose):
                space = spaces.find_space_by_id(session, job.space_id or 0)
                key = f"after {job.id}"
                self._jobs.enqueue(session, job.tenant, KIND, {}, space=space, dedup_key=key)
            return {"told": told}

        return finish

    def _waiting(self, whose: _Whose, until: float) -> Iterator[events.Event]:
        """What is to be told, for as long as there is time."""
        while True:
            with self._database.reading() as session:
                waiting = events.untold(session, *whose, _AT_ONCE)
            for event in waiting:
                if time.monotonic() >= until:
                    return
                yield event
            if not waiting:
                return

    def tell(self, event: events.Event) -> None:
        """Write down the deliveries of one event.

        Raises:
            Unavailable: a store is away; it is tried again later.
        """
        with self._database.reading() as session:
            found = events.find_untold(session, event)  # as it is after those before it
            if found is None:
                return
            event = found
            here = subscriptions.find_listeners(session, event.tenant_id, event.space)
            model = None
            if event.model_id is not None:  # by its id: it may have another name by now
                model = models.models_by_id(session, [event.model_id]).get(event.model_id)
        if event.model is not None:
            tags = () if model is None else model.tags
            here = [s for s in here if s.model in {None, event.model}]
            here = [s for s in here if s.tag is None or s.tag in tags]
        wanted: list[_Wanted] = [
            (s, event.type, event.data) for s in here if event.type in s.events
        ]
        compared = None
        if model is not None:
            followed = self._followed(event, model, here)
            if followed is None:
                return
            compared, more = followed
            wanted += more
        with self._database.writing() as session:
            if events.find_untold(session, event, lock=True) is None:
                return
            deliveries = [
                new_delivery(subscription, event.id, kind, _body(kind, event, data))
                for subscription, kind, data in wanted
            ]
            if sent.insert_deliveries(session, deliveries):
                wake(session, self._jobs)
            if compared is not None:
                events.mark_compared(session, event, compared)
            events.mark_told(session, event)

    def _followed(
        self, event: events.Event, model: ModelRecord, here: Sequence[Subscription]
    ) -> tuple[int | None, list[_Wanted]] | None:
        """What follows from an event, and up to which revision neighbours were compared.

        Returns:
            None where that could not be found out, and will be tried again.
        """
        try:
            return self._follow(event, model, here)
        except Exception as error:
            is_away = isinstance(error, Unavailable)
            if event.failures + 1 < (_ATTEMPTS_AWAY if is_away else _ATTEMPTS):
                with self._database.writing() as session:
                    events.note_failure(session, event)
                if is_away:
                    raise
                return None
            log.exception("what follows from event %s (%s) is not told", event.id, event.type)
            return None, []

    def _follow(
        self, event: events.Event, model: ModelRecord, here: Sequence[Subscription]
    ) -> tuple[int | None, list[_Wanted]]:
        with self._database.reading() as session:
            space = spaces.find_space_by_id(session, event.space_id)
            followed = events.is_followed(session, event)
        if space is None:
            return None, []
        compared, wanted = None, list[_Wanted]()
        near = [s for s in here if NEIGHBORS_CHANGED in s.events]
        if event.type == SUPPORT_STORED and near and not event.compared:
            compared, wanted = self._neighbors(space, event, model.name, near)
        judged = [s for s in here if LINEAGE_MISMATCH in s.events]
        if judged and model.base_model is not None and not followed:
            wanted += self._mismatches(space, model.name, judged)
        return compared, wanted

    def _neighbors(
        self, space: SpaceRecord, event: events.Event, name: str, near: Sequence[Subscription]
    ) -> tuple[int | None, list[_Wanted]]:
        assert event.revision is not None
        lowest = min(_threshold(subscription) for subscription in near)
        changes = self._crossings.changes(space, name, event.revision, lowest)
        if changes is None:
            return None, []
        told = [(s, _changed(space, changes, _threshold(s))) for s in near]
        return changes.model.revision, [
            (subscription, NEIGHBORS_CHANGED, data) for subscription, data in told if data
        ]

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


def _threshold(subscription: Subscription) -> float:
    assert subscription.threshold is not None
    return subscription.threshold


def _changed(space: SpaceRecord, changes: Changes, threshold: float) -> dict[str, Any] | None:
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


def _body(kind: str, event: events.Event, data: Mapping[str, Any]) -> bytes:
    """What is sent, byte by byte: the time is that of the change."""
    told = {
        "type": kind,
        "timestamp": event.created_at.isoformat().replace("+00:00", "Z"),
        "data": {"event": event.id, **data},
    }
    return json.dumps(told, ensure_ascii=False, separators=(",", ":")).encode()
