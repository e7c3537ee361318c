"""The calls about jobs: making, listing, cancelling them, and waiting for their end.

What is sent and how answers are read is decided here once for both clients, and so is how long to
wait before looking again; they send and sleep.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

from modelkin._validation import check_space_name
from modelkin.client._protocol import decoding, requests
from modelkin.client._protocol.decoding import Fields
from modelkin.client._protocol.spaces import Call
from modelkin.client._sync.listing import AsyncListing, Listing
from modelkin.client._sync.resource import AsyncCalling, Calling
from modelkin.client._transport.errors import parse_json
from modelkin.client._transport.messages import Request, Response
from modelkin.errors import InvalidParameter, JobCancelled, JobFailed
from modelkin.types.jobs import JobInfo, JobProgress
from modelkin.types.paging import Page
from modelkin.wire import JSON

__all__ = ["AsyncJobCalls", "JobCalls", "OnProgress", "read_job"]

OnProgress = Callable[[JobInfo], object]

_JOBS = "/v1/jobs"
_ID = re.compile(r"[0-9A-Za-z-]{1,64}")
_STATES = ("queued", "running", "succeeded", "failed", "cancelled")
_FIRST, _GROWTH, _LONGEST = 0.1, 1.5, 2.0
"""Seconds between two looks at a job, and how they grow."""


class JobCalls(Calling):
    """Part of :class:`modelkin.Client`."""

    def start_job(self, space: str, kind: str, **parameters: Any) -> JobInfo:
        """Has something done to a space, and answers the job at once.

            job = client.start_job("digits-cnn", "stop_list", share=0.5)
            client.wait_for_job(job).result

        Args:
            space: where.
            kind: ``"rebuild_buckets"`` or ``"stop_list"``. While one waits or runs in this space,
                that is the answer, and no second one is made.
            parameters: of this kind.
        """
        return self._run(_start(space, kind, parameters))

    def jobs(
        self, *, state: str | None = None, kind: str | None = None, space: str | None = None
    ) -> Listing[JobInfo]:
        """All jobs, newest first, fetched page by page as they are read.

        Args:
            state: only those in this state.
            kind: only those of this kind.
            space: only those about the space of this name.
        """
        return Listing(self._rows(_list(state, kind, space)), JobInfo)

    def job(self, job: str | JobInfo) -> JobInfo:
        """A job as it is now; ``job_not_found`` where there is none."""
        return self._run(_show(job))

    def cancel_job(self, job: str | JobInfo) -> JobInfo:
        """Cancels a job; one that runs is ``cancelling`` until it hears of it.

        Raises:
            ApiError: ``job_finished`` where it has succeeded or failed.
        """
        return self._run(_cancel(job))

    def wait_for_job(
        self,
        job: str | JobInfo,
        *,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> JobInfo:
        """The job once it has succeeded.

        Args:
            job: it, or its id.
            timeout: seconds to wait at most; None for as long as it takes.
            on_progress: called with the job whenever its state or progress has changed.

        Raises:
            JobFailed: it failed; ``job`` is what became of it.
            JobCancelled: it was cancelled; likewise.
            TimeoutError: it has not ended in time. It goes on.
        """
        waiting = _Waiting(timeout, on_progress)
        while (pause := waiting.after(found := self._run(_show(job)))) is not None:
            self._sleep(pause)
        return found


class AsyncJobCalls(AsyncCalling):
    """Part of :class:`modelkin.AsyncClient`."""

    async def start_job(self, space: str, kind: str, **parameters: Any) -> JobInfo:
        """Has something done to a space, and answers the job at once."""
        return await self._run(_start(space, kind, parameters))

    def jobs(
        self, *, state: str | None = None, kind: str | None = None, space: str | None = None
    ) -> AsyncListing[JobInfo]:
        """All jobs, newest first, fetched page by page as they are read."""
        return AsyncListing(self._rows(_list(state, kind, space)), JobInfo)

    async def job(self, job: str | JobInfo) -> JobInfo:
        """A job as it is now; ``job_not_found`` where there is none."""
        return await self._run(_show(job))

    async def cancel_job(self, job: str | JobInfo) -> JobInfo:
        """Cancels a job; one that runs is ``cancelling`` until it hears of it."""
        return await self._run(_cancel(job))

    async def wait_for_job(
        self,
        job: str | JobInfo,
        *,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> JobInfo:
        """The job once it has succeeded."""
        waiting = _Waiting(timeout, on_progress)
        while (pause := waiting.after(found := await self._run(_show(job)))) is not None:
            await self._sleep(pause)
        return found


class _Waiting:
    """How long to wait before a job is looked at again.

    Args:
        timeout: seconds from now.
        told: called with the job when it has changed.
    """

    def __init__(self, timeout: float | None, told: OnProgress | None) -> None:
        if timeout is not None and not timeout >= 0:
            raise InvalidParameter(f"timeout must be 0 or more, not {timeout!r}", field="timeout")
        self._end = None if timeout is None else time.monotonic() + timeout
        self._timeout = timeout
        self._told = told
        self._pause = _FIRST
        self._last: tuple[str, JobProgress | None] | None = None

    def after(self, job: JobInfo) -> float | None:
        """Seconds until the next look; None where it has succeeded."""
        if self._told is not None and (job.state, job.progress) != self._last:
            self._last = job.state, job.progress
            self._told(job)
        if job.state == "succeeded":
            return None
        if job.finished:
            raise _failed(job)
        pause, self._pause = self._pause, min(self._pause * _GROWTH, _LONGEST)
        if self._end is None:
            return pause
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"job {job.id} is {job.state} after {self._timeout:g} s; it goes on")
        return min(pause, left)


def _failed(job: JobInfo) -> JobFailed:
    error = job.error or {}
    kind = JobCancelled if job.state == "cancelled" else JobFailed
    code, detail = error.get("code", "?"), error.get("detail", "?")
    return kind(f"job {job.id} ({job.kind}) {job.state}: {code}: {detail}", job)


def _start(space: str, kind: str, parameters: dict[str, Any]) -> Call[JobInfo]:
    path = f"{requests.space_path(space)}/jobs"
    # Sent twice it is still one job, or at most done over.
    return Call(requests.post(path, {"kind": kind, "parameters": parameters}), read_job)


def _list(state: str | None, kind: str | None, space: str | None) -> Call[Page[JobInfo]]:
    if state is not None and state not in _STATES:
        raise InvalidParameter(f"state is one of {', '.join(_STATES)}", field="state")
    named = {
        "state": state,
        "kind": kind,
        "space": None if space is None else check_space_name(space),
    }
    params = [(name, value) for name, value in named.items() if value is not None]
    request = requests.get(_JOBS, [("limit", "100"), *params])
    return Call(request, lambda r: decoding.read_page(Fields(parse_json(r)), _read_job))


def _show(job: str | JobInfo) -> Call[JobInfo]:
    return Call(requests.get(_path(job)), read_job)


def _cancel(job: str | JobInfo) -> Call[JobInfo]:
    # Cancelling twice is cancelling.
    request = Request("POST", f"{_path(job)}/cancel", (), {"Accept": JSON}, idempotent=True)
    return Call(request, read_job)


def _path(job: str | JobInfo) -> str:
    job_id = job.id if isinstance(job, JobInfo) else job
    if not isinstance(job_id, str) or not _ID.fullmatch(job_id):
        raise InvalidParameter(f"{job_id!r} is no job's id", field="job")
    return f"{_JOBS}/{job_id}"


def read_job(response: Response) -> JobInfo:
    """The job that is answered."""
    return _read_job(Fields(parse_json(response)))


def _read_job(body: Fields) -> JobInfo:
    return JobInfo(
        id=body.text("id"),
        kind=body.text("kind"),
        state=body.text("state"),
        space=body.optional("space", body.text),
        parameters=body.mapping("parameters"),
        progress=body.optional("progress", lambda name: _read_progress(body.inner(name))),
        result=body.optional("result", body.mapping),
        error=body.optional("error", body.mapping),
        attempts=body.integer("attempts"),
        cancelling=body.flag("cancelling"),
        created_at=body.moment("created_at"),
        not_before=body.optional("not_before", body.moment),
        started_at=body.optional("started_at", body.moment),
        finished_at=body.optional("finished_at", body.moment),
    )


def _read_progress(body: Fields) -> JobProgress:
    return JobProgress(body.integer("done"), body.integer("total"), body.text("stage"))
