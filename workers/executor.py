"""``JobExecutor``: carries out one claimed job, and decides the end of the attempt."""

from __future__ import annotations

import logging
import math
import threading
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import Final

from app.infra.db.database import Database
from app.infra.db.visibility import every_tenant, one_tenant
from app.infra.errors import RetryLater, Unavailable
from app.jobs.claim import JobClaim, LeaseLost, ShuttingDown
from app.jobs.queue import MAX_ATTEMPTS
from app.jobs.records import HUB_QUEUES, JobRecord
from app.jobs.service import SERVICE, JobService, Unfinished
from modelkin.errors import ModelkinError

__all__ = ["JobExecutor"]

_BACKOFF_S: Final = (1.0, 5.0, 30.0, 120.0)
"""Seconds before the next attempt, after the first, second, ... with an unavailable store."""
_MAX_WAIT_S: Final = 3 * 86400.0
"""Seconds for which a job is retried whose handler raises ``RetryLater``."""

log = logging.getLogger(__name__)


class JobExecutor:
    """Carries out the jobs of one worker, each in the thread that calls.

    Args:
        jobs: the service with the handlers.
        timeout: seconds that an attempt may take; jobs that wait for hubs have other limits.
    """

    def __init__(self, database: Database, jobs: JobService, *, timeout: float = math.inf) -> None:
        self._database = database
        self._jobs = jobs
        self._timeout = timeout
        self.stopping = threading.Event()
        """Set to have every job queued again at its next report of progress."""

    def execute(self, job: JobRecord) -> None:
        """Make one attempt at a claimed job, and record its end."""
        timeout = math.inf if self._jobs.queues.get(job.kind) in HUB_QUEUES else self._timeout
        claim = JobClaim(self._database, job, self.stopping, timeout)
        log.info("job %s (%s) begins, attempt %d", job.id, job.kind, job.attempts)
        try:
            with _showing(job):
                claim.finish(self._jobs.handler(job.kind)(job, claim.progress))
        except ShuttingDown:
            log.info("job %s is queued again: this worker stops", job.id)
            claim.requeue()
        except Unfinished:
            claim.requeue()
        except LeaseLost:
            log.warning("job %s was taken over by another worker", job.id)
        except Unavailable as error:
            _try_later(claim, error)
        except ModelkinError as error:
            claim.fail(error.code, str(error))
        except Exception:
            log.exception("job %s (%s) failed by a bug", job.id, job.kind)
            detail = f"this is a bug in the service; its log has the details under job {job.id}"
            claim.fail("internal_error", detail)


def _try_later(claim: JobClaim, error: Unavailable) -> None:
    """Retry a job after an unavailable store, up to the limit of attempts or of time."""
    job = claim.job
    if isinstance(error, RetryLater):
        now = datetime.now(UTC)
        waited = (now - (job.started_at or now)).total_seconds()
        if waited > _MAX_WAIT_S:
            claim.fail(error.code, f"{error} (for {waited / 86400:.1f} days)")
            return
        # Each pause doubles the total wait, within bounds.
        pause = max(min(max(waited, _BACKOFF_S[0]), error.most), error.retry_after)
        claim.retry(error, pause, counts=False)
    elif job.attempts >= MAX_ATTEMPTS:
        claim.fail(error.code, f"{error} (after {job.attempts} attempts)")
    else:
        claim.retry(error, _BACKOFF_S[min(job.attempts, len(_BACKOFF_S)) - 1], counts=True)


def _showing(job: JobRecord) -> AbstractContextManager[None]:
    """Show a job's transactions the rows of its tenant; all rows for a job of the service."""
    return every_tenant() if job.tenant.name == SERVICE else one_tenant(job.tenant.id)
