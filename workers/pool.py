"""``JobPool``: the threads of a worker's jobs, and the places that they take.

Each queue has some places, so that its jobs delay those of no other queue. A tenant never takes all
places of a queue.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

from app.jobs.records import JobRecord, QueueName

__all__ = ["JobPool"]

_SHORT_PLACES, _SHORT_PLACES_PER_TENANT = 4, 2
"""Short jobs at a time, beside all others: of all tenants, and of each."""

log = logging.getLogger(__name__)


class JobPool:
    """A pool of jobs that run, each in a thread of its own.

    Args:
        execute: carries a job out.
        concurrency: the most jobs at a time that are not short, at least 4; half of these places
            are for the hubs queue. One tenant may fill all but one of the places of each queue.
            Backfills have places beside them, one less than the hubs queue.
        on_end: called, in any thread, when a place is free again.
    """

    def __init__(
        self,
        execute: Callable[[JobRecord], None],
        concurrency: int,
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        half = concurrency // 2
        self._places: Final[dict[QueueName, tuple[int, int]]] = {
            "jobs": (concurrency - half, concurrency - half - 1),
            "hubs": (half, half - 1),
            "backfills": (half - 1, half - 1),
            "short": (_SHORT_PLACES, _SHORT_PLACES_PER_TENANT),
        }
        self._execute = execute
        self._on_end = on_end
        self._changed = threading.Condition()
        self._running: dict[str, tuple[QueueName, int]] = {}

    @property
    def held(self) -> frozenset[str]:
        """The ids of the jobs that run here."""
        with self._changed:
            return frozenset(self._running)

    def has_place(self, queue: QueueName, tenant_id: int) -> bool:
        """Whether a queue has a free place for a job of a tenant."""
        places, each = self._places[queue]
        with self._changed:
            tenants = [tenant for used, tenant in self._running.values() if used == queue]
        return len(tenants) < places and tenants.count(tenant_id) < each

    def start(self, queue: QueueName, job: JobRecord) -> None:
        """Carry a job out in the background."""
        thread = threading.Thread(target=self._run, args=(job,), name=f"job {job.id}", daemon=True)
        with self._changed:
            thread.start()
            self._running[job.id] = queue, job.tenant.id

    def wait(self, timeout: float) -> bool:
        """Wait until no job runs here; whether that was in time."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._running, timeout)

    def _run(self, job: JobRecord) -> None:
        try:
            self._execute(job)
        except Exception:
            log.exception("the end of job %s was not recorded, because of a bug", job.id)
        finally:
            with self._changed:
                del self._running[job.id]
                self._changed.notify_all()
            self._on_end()
