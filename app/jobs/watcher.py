"""``JobWatcher``: follows jobs for many streams with one query.

A stream holds neither a thread nor a connection. Polling starts with the first stream and ends with
the last.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Mapping

from anyio.to_thread import run_sync

from app.errors import Unavailable, explain
from app.jobs.records import JobRecord

__all__ = ["JobWatcher"]

_POLL_INTERVAL_S = 0.5
_MAX_STREAMS = 1000

log = logging.getLogger(__name__)


class JobWatcher:
    """Polls the followed jobs of one process.

    Args:
        read: returns the present jobs with some ids; it may block, in a thread.
        is_over: whether the process is about to end, and every stream with it.
    """

    def __init__(
        self,
        read: Callable[[Collection[str]], Mapping[str, JobRecord]],
        is_over: Callable[[], bool],
    ) -> None:
        self._read = read
        self._is_over = is_over
        self._watched: Counter[str] = Counter()
        self._seen: dict[str, JobRecord | None] = {}
        self._polled = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def require_capacity(self) -> None:
        """Raise :class:`Unavailable` if too many streams are open."""
        if self._watched.total() >= _MAX_STREAMS:
            raise Unavailable(f"{_MAX_STREAMS} streams are open here: ask for the job itself")

    async def follow(self, job: JobRecord, after: int | None) -> AsyncIterator[JobRecord | None]:
        """Yield the job at once and after each change, until it ends; None after other polls.

        Args:
            job: its present state.
            after: the revision that the client knows already.
        """
        self._enter(job.id)
        try:
            while True:
                if job.revision != after:
                    yield job
                    after = job.revision
                if job.finished or self._is_over():
                    return
                await self._polled.wait()
                found = self._seen.get(job.id, job)
                if found is None:  # deleted since
                    return
                if found.revision > job.revision:
                    job = found
                else:
                    yield None
        finally:
            self._leave(job.id)

    def _enter(self, job_id: str) -> None:
        self._watched[job_id] += 1
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._poll())

    def _leave(self, job_id: str) -> None:
        self._watched[job_id] -= 1
        if not self._watched[job_id]:
            del self._watched[job_id]
        if not self._watched and self._task is not None:
            self._task.cancel()
            self._task = None

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(_POLL_INTERVAL_S)
            asked = frozenset(self._watched)
            try:
                found = await run_sync(self._read, asked)
                self._seen = {job_id: found.get(job_id) for job_id in asked}
            except Unavailable as error:
                log.info("jobs cannot be followed now: %s", explain(error))
            except Exception:
                log.exception("jobs cannot be followed now, because of a bug")
            polled, self._polled = self._polled, asyncio.Event()
            polled.set()
