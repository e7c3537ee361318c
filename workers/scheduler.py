"""What is due every so often, enqueued by whichever worker comes first.

Time is cut into slots as long as the period. The job of a slot has an id that follows from the
slot, so there is one, however many workers there are; a slot in which no worker ran is left out.
What is no more than a look each worker does here, once in a slot, without a job.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta

from app.auth.records import Tenant
from app.auth.tenants import ensure_tenant
from app.errors import Unavailable
from app.infra.db.database import Database
from app.jobs.service import SERVICE, JobService, Periodic, PeriodicTask

__all__ = ["SERVICE", "Scheduler"]

log = logging.getLogger(__name__)


class Scheduler:
    """The periodic kinds, and their slots that this process has seen.

    Args:
        database: the truth.
        jobs: knows the kinds.
    """

    def __init__(self, database: Database, jobs: JobService) -> None:
        self._database = database
        self._jobs = jobs
        self._seen: dict[str, datetime] = {}
        self._looked: dict[str, datetime] = {}
        self._tenant: Tenant | None = None

    def tick(self, now: datetime) -> None:
        """Enqueue what is due and was not, unless the one before is unfinished; and look."""
        for periodic in self._jobs.periodic:
            slot = slot_of(now, periodic.every)
            if self._seen.get(periodic.kind) != slot:
                if self._is_wanted(periodic):
                    self._enqueue(periodic, slot)
                self._seen[periodic.kind] = slot

        for look in self._jobs.looks:
            slot = slot_of(now, look.every)
            if self._looked.get(look.name) != slot:
                self._looked[look.name] = slot
                _take(look)

    def _is_wanted(self, periodic: Periodic) -> bool:
        with self._database.reading() as session:
            return periodic.wanted(session)

    def _enqueue(self, periodic: Periodic, slot: datetime) -> None:
        with self._database.writing() as session:
            tenant = self._tenant or ensure_tenant(session, SERVICE)
            self._jobs.enqueue(
                session,
                tenant,
                periodic.kind,
                periodic.parameters,
                dedup_key=SERVICE,
                slot=slot,
            )
        self._tenant = tenant


def _take(look: PeriodicTask) -> None:
    """One look: what goes wrong with it keeps nothing else from going on."""
    try:
        look.look()
    except Unavailable as error:
        log.warning("%s: not looked at now: %s", look.name, error)
    except Exception:
        log.exception("%s: not looked at, because of a bug", look.name)


def slot_of(now: datetime, period: timedelta) -> datetime:
    """When the slot began that ``now`` is in; the same for every worker."""
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    return epoch + period * ((now - epoch) // period)
