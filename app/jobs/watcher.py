"""Jobs as they change, for many who watch: one look at the database tells all of them.

A stream holds neither a thread nor a connection. The looks begin with the first who watches and end
with the last. This module knows nothing of HTTP.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Mapping

from anyio.to_thread import run_sync

from app.errors import Unavailable
from app.jobs.records import JobRecord

__all__ = ["JobWatcher"]

_EVERY = 0.5
"""Seconds between two looks."""
_MOST = 1000
"""Who may watch at a time."""

log = logging.getLogger(__name__)


class JobWatcher:
    """The jobs that somebody watches, in one process.

    Args:
        look: the jobs of some ids, as they are; it may wait, in a thread.
        is_over: whether the process is about to end, and every stream with it.
    """

    def __init__(
        self,
        look: Callable[[Collection[str]], Mapping[str, JobRecord]],
        is_over: Callable[[], bool],
    ) -> None:
        self._look = look
        self._is_over = is_over
        self._watched: Counter[str] = Counter()
        self._seen: dict[str, JobRecord | None] = {}
        self._looked = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def require_room(self) -> None:
        """Raise :class:`Unavailable` where too many watch already."""
        if self._watched.total() >= _MOST:
            raise Unavailable(f"{_MOST} jobs are being watched here: ask for the job itself")

    async def follow(self, job: JobRecord, after: int | None) -> AsyncIterator[JobRecord | None]:
        """The job at once and whenever it has changed, until it has ended; None in between.

        Args:
            job: as it was found.
            after: the revision that is known already.
        """
        self._enter(job.id)
        try:
            while True:
                if job.revision != after:
                    yield job
                    after = job.revision
                if job.finished or self._is_over():
                    return
                await self._looked.wait()
                found = self._seen.get(job.id, job)
                if found is None:  # forgotten since
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
            self._task = asyncio.get_running_loop().create_task(self._keep_looking())

    def _leave(self, job_id: str) -> None:
        self._watched[job_id] -= 1
        if not self._watched[job_id]:
            del self._watched[job_id]
        if not self._watched and self._task is not None:
            self._task.cancel()
            self._task = None

    async def _keep_looking(self) -> None:
        while True:
            await asyncio.sleep(_EVERY)
            asked = frozenset(self._watched)
            try:
                found = await run_sync(self._look, asked)
                self._seen = {job_id: found.get(job_id) for job_id in asked}
            except Unavailable as error:
                log.info("jobs cannot be followed now: %s", error)
            except Exception:
                log.exception("jobs cannot be followed now, because of a bug")
            looked, self._looked = self._looked, asyncio.Event()
            looked.set()
