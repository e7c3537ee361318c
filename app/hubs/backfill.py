"""``FingerprintBackfill``: models that are stored without a fingerprint are read again, once.

They are synced as after an event, by jobs of a kind that waits for all other jobs of hubs. So any
number of workers share the work, and a job that dies with its worker is done by another. Few jobs
wait at a time, the last changed models first: the others are rows without a state.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from app.hubs.records import SourceRecord
from app.hubs.repositories import fingerprint_states
from app.hubs.sync_requests import SyncScheduler
from app.infra.db.database import Database, Reader, Writer
from app.jobs.records import JobRecord
from app.jobs.service import Progress

__all__ = ["BACKFILL_INTERVAL", "BACKFILL_TICK", "FingerprintBackfill"]

BACKFILL_TICK: Final = "fingerprint_backfills"
"""The kind of the periodic jobs that enqueue the syncs that are due."""
BACKFILL_INTERVAL: Final = timedelta(seconds=10)
_MAX_AHEAD: Final = 200
"""Syncs of a source that wait or run; they keep workers busy from one tick to the next."""
_MAX_SOURCES: Final = 100
"""Sources of a tick; others wait for the next one."""
_ASK_AGAIN: Final = timedelta(days=1)
"""How long a model is not asked for again whose sync has failed, or was cancelled."""
_LOOK_AGAIN: Final = timedelta(hours=1)
"""The pause of a source of which nothing waits."""
_HOUR: Final = timedelta(hours=1)


class FingerprintBackfill:
    """Enqueues the syncs of models that are to be read for their fingerprints.

    Args:
        database: the database with the state of sources.
        syncs: enqueues syncs.
        now: returns the present moment, in UTC.
    """

    def __init__(
        self,
        database: Database,
        syncs: SyncScheduler,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._database = database
        self._syncs = syncs
        self._now = now

    def any_due(self, session: Reader) -> bool:
        """Whether the models of any source may be asked for."""
        return fingerprint_states.any_due(session, self._now())

    def enqueue_due(self, job: JobRecord, progress: Progress) -> Mapping[str, Any]:
        """Carry out a job of the kind ``BACKFILL_TICK``."""
        del job
        progress(0, 0, "finding models without fingerprints")
        return {"syncs": self.due()}

    def due(self) -> int:
        """Enqueue the syncs that are due now; return their number."""
        with self._database.writing() as session:
            now = self._now()
            found = fingerprint_states.due(session, now, limit=_MAX_SOURCES)
            return sum(self._enqueue(session, source, now) for source in found)

    def _enqueue(self, session: Writer, source: SourceRecord, now: datetime) -> int:
        """Enqueue the next syncs of a locked source, as many as its rate and the queue allow."""
        allowed, then = _allowance(source, now)
        names, others = fingerprint_states.waiting(
            session, source.id, now - _ASK_AGAIN, limit=min(allowed, _MAX_AHEAD)
        )
        names = names[: max(0, _MAX_AHEAD - others)]
        for name in names:
            self._syncs.read_again(session, source.tenant, source.id, name, space=source.space)
        fingerprint_states.note_asked(session, source.id, names, now)
        if not names:
            then = now + (_LOOK_AGAIN if not others else BACKFILL_INTERVAL)
        fingerprint_states.put_off(session, source.id, then)
        return len(names)


def _allowance(source: SourceRecord, now: datetime) -> tuple[int, datetime]:
    """How many models may be asked for now, and when the next ones may be.

    After a pause no more are allowed than in one tick: the hub is not to be overrun.
    """
    if source.backfill_per_hour is None:
        return _MAX_AHEAD, now
    interval = _HOUR / source.backfill_per_hour
    due = source.next_backfill_at or now
    allowed = min(1 + (now - due) // interval, math.ceil(BACKFILL_INTERVAL / interval))
    then = due + allowed * interval
    return allowed, then if then > now else now + interval
