"""``client.jobs``: work of the service that goes on after an answer."""

from __future__ import annotations

from typing import Any

from modelkin.client._async.listing import AsyncListing
from modelkin.client._async.resource import AsyncResource
from modelkin.client._protocol import jobs
from modelkin.client._protocol.jobs import JobPoller, OnProgress
from modelkin.errors import ConnectionFailed
from modelkin.types.jobs import JobInfo
from modelkin.types.vocabulary import JobKind, JobState, StartableJobKind

__all__ = ["AsyncJobs"]


class AsyncJobs(AsyncResource):
    """Jobs."""

    async def create(self, space: str, kind: StartableJobKind, **parameters: Any) -> JobInfo:
        """Starts a job in a space and returns it at once.

            job = await client.jobs.create("digits-cnn", "rebuild_buckets")
            result = (await client.jobs.wait(job)).result

        Args:
            space: the name of the space that the job works on.
            kind: the kind of work. While a job of this kind is queued or running in the space, the
                service answers with that job.
            parameters: the settings that this kind takes, by name.

        Raises:
            ApiError: ``space_not_found``, or a parameter is wrong.
        """
        return await self._connection.run(jobs.create(space, kind, parameters))

    def list(
        self,
        *,
        state: JobState | None = None,
        kind: JobKind | None = None,
        space: str | None = None,
    ) -> AsyncListing[JobInfo]:
        """Lists jobs, the newest first, page by page as they are read.

        Args:
            state: only jobs in this state.
            kind: only jobs of this kind.
            space: only jobs of the space of this name.
        """
        return self._listing(jobs.list_all(state, kind, space), JobInfo)

    async def get(self, job: str | JobInfo) -> JobInfo:
        """Reads a job.

        Args:
            job: the job, or its id.

        Raises:
            ApiError: ``job_not_found``.
        """
        return await self._connection.run(jobs.get(job))

    async def cancel(self, job: str | JobInfo) -> JobInfo:
        """Requests the cancellation of a job; ``cancelling`` is true until it takes effect.

        Args:
            job: the job, or its id.

        Raises:
            ApiError: ``job_finished`` for a job that has succeeded or failed.
        """
        return await self._connection.run(jobs.cancel(job))

    async def wait(
        self,
        job: str | JobInfo,
        *,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> JobInfo:
        """Waits until a job has succeeded and returns it.

        Args:
            job: the job, or its id.
            timeout: seconds to wait at most; None for no limit.
            on_progress: a function that is called with the job whenever its state or progress has
                changed.

        Raises:
            JobFailed: the job failed; ``error.job`` is its last state.
            JobCancelled: the job was cancelled; ``error.job`` is its last state.
            TimeoutError: the job has not ended in time. It goes on.
        """
        poller = JobPoller(timeout, on_progress)
        while True:
            try:
                found = await self._connection.run(jobs.get(job), seconds=poller.seconds)
            except ConnectionFailed:
                poller.require_time(job)
                raise
            interval = poller.after(found)
            if interval is None:
                return found
            await self._connection.sleep(interval)
