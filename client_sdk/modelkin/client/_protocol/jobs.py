"""Calls about jobs, and the intervals at which a waiting client asks again."""

from __future__ import annotations

import time
from typing import Any, Final

from modelkin._terminal_text import one_line
from modelkin._validation import check_space_name
from modelkin.client._protocol.calls import requests
from modelkin.client._protocol.calls.call import Call
from modelkin.client._protocol.calls.decoding import reader
from modelkin.client._transport.messages import Request
from modelkin.client._transport.progress import OnProgress
from modelkin.errors import InvalidParameter, JobCancelled, JobFailed
from modelkin.types.jobs import JobInfo, JobProgress
from modelkin.types.paging import Page
from modelkin.types.vocabulary import JobState
from modelkin.wire import JSON

__all__ = ["JobPoller", "OnProgress", "cancel", "create", "get", "list_all", "read_job"]

_JOBS: Final = "/v1/jobs"
_STATES: Final = ("queued", "running", "succeeded", "failed", "cancelled")

_FIRST_INTERVAL_S: Final = 0.1
_INTERVAL_GROWTH: Final = 1.5
_MAX_INTERVAL_S: Final = 2.0
_LEAST_S: Final = 1.0
"""The seconds of a request at the end of a wait: without any, no state would ever be read."""

read_job = reader(JobInfo)


def create(space: str, kind: str, parameters: dict[str, Any]) -> Call[JobInfo]:
    """Starts a job in a space."""
    path = f"{requests.space_path(space)}/jobs"
    return Call(requests.post_once(path, {"kind": kind, "parameters": parameters}), read_job)


def list_all(state: str | None, kind: str | None, space: str | None) -> Call[Page[JobInfo]]:
    """Lists the jobs that match."""
    if state is not None and state not in _STATES:
        raise InvalidParameter(f"state is one of {', '.join(_STATES)}", field="state")
    filters = {
        "state": state,
        "kind": kind,
        "space": None if space is None else check_space_name(space),
    }
    params = [(name, value) for name, value in filters.items() if value is not None]
    return Call(requests.get(_JOBS, [*requests.PAGE_SIZE, *params]), reader(Page[JobInfo]))


def get(job: str | JobInfo) -> Call[JobInfo]:
    """Reads a job."""
    return Call(requests.get(_path(job)), read_job)


def cancel(job: str | JobInfo) -> Call[JobInfo]:
    """Requests the cancellation of a job."""
    # A second cancellation changes nothing.
    request = Request("POST", f"{_path(job)}/cancel", (), {"Accept": JSON}, idempotent=True)
    return Call(request, read_job)


class JobPoller:
    """The intervals at which a client asks for a job until it ends, and reports its progress.

    Args:
        timeout: the most seconds to wait, from now.
        on_progress: a function that is called with the job when it has changed.

    Raises:
        InvalidParameter: the timeout is negative.
    """

    def __init__(self, timeout: float | None, on_progress: OnProgress | None) -> None:
        if timeout is not None and not timeout >= 0:
            raise InvalidParameter(f"timeout must be 0 or more, not {timeout!r}", field="timeout")
        self._end = None if timeout is None else time.monotonic() + timeout
        self._timeout = timeout
        self._on_progress = on_progress
        self._interval = _FIRST_INTERVAL_S
        self._last: tuple[JobState, JobProgress | None] | None = None

    @property
    def seconds(self) -> float | None:
        """The most seconds for the next request, a second at least; None for the usual ones."""
        return None if self._end is None else max(self._end - time.monotonic(), _LEAST_S)

    def require_time(self, job: str | JobInfo) -> None:
        """Refuse to go on where the job's state did not come in time.

        Raises:
            TimeoutError: the time is over.
        """
        if self._end is not None and time.monotonic() >= self._end:
            name = job.id if isinstance(job, JobInfo) else job
            raise TimeoutError(f"job {name} did not say its state within {self._timeout:g} s")

    def after(self, job: JobInfo) -> float | None:
        """Seconds until the next request; None once the job has succeeded.

        Raises:
            JobFailed: the job failed.
            JobCancelled: the job was cancelled.
            TimeoutError: the job has not ended in time.
        """
        if self._on_progress is not None and (job.state, job.progress) != self._last:
            self._last = job.state, job.progress
            self._on_progress(job)
        if job.state == "succeeded":
            return None
        if job.finished:
            raise _failure(job)
        interval = self._interval
        self._interval = min(interval * _INTERVAL_GROWTH, _MAX_INTERVAL_S)
        if self._end is None:
            return interval
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"job {job.id} is {job.state} after {self._timeout:g} s; it goes on")
        return min(interval, left)


def _failure(job: JobInfo) -> JobFailed:
    error = job.error or {}
    kind = JobCancelled if job.state == "cancelled" else JobFailed
    code, detail = error.get("code", "?"), error.get("detail", "?")
    return kind(one_line(f"job {job.id} ({job.kind}) {job.state}: {code}: {detail}"), job)


def _path(job: str | JobInfo) -> str:
    job_id = job.id if isinstance(job, JobInfo) else job
    return f"{_JOBS}/{requests.check_id(job_id, 'job')}"
