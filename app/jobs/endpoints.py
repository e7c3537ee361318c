"""/v1/jobs: background jobs, listed, shown, followed and cancelled."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Path, Query, Response
from fastapi.sse import format_sse_event
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from app.auth.dependencies import (
    AUTHENTICATED,
    REFUSALS,
    AuthenticatedJsonRoute,
    Caller,
    ReadingTenant,
    WritingTenant,
)
from app.errors import JobFinished, JobNotFound, QueueFull, RateLimited, StorageFull
from app.infra.http.answers import PageLimit, page_answer
from app.infra.http.dependencies import Cursor, Reading, Writing
from app.infra.http.endpoint_threads import in_endpoint_thread
from app.infra.http.openapi import problems
from app.infra.http.services import Service
from app.jobs.records import JobRecord, JobState
from app.jobs.schemas import JobOut, JobPage
from app.jobs.service import JobService
from app.jobs.watcher import JobStream, JobWatcher
from modelkin._validation import check_space_name
from modelkin.errors import InvalidName, InvalidParameter

__all__ = ["accepted", "router"]

EVENTS = "text/event-stream"

_KEEPALIVE_INTERVAL_S = 15.0
"""Seconds without an event after which a comment keeps the stream alive."""
_RECONNECT_MS = 2000
"""Milliseconds before a client reconnects after its stream broke off."""

router = APIRouter(
    tags=["jobs"],
    route_class=AuthenticatedJsonRoute,
    dependencies=AUTHENTICATED,
    responses=REFUSALS,
)

JobId = Annotated[str, Path(description="the id of the job")]


def accepted(response: Response, job: JobRecord) -> JobOut:
    """The answer of an operation that has enqueued a job: 202 with the job's location."""
    response.status_code = 202
    response.headers["Location"] = f"/v1/jobs/{job.id}"
    return JobOut.of(job)


@router.get(
    "/v1/jobs",
    operation_id="list_jobs",
    responses=problems(InvalidParameter, InvalidName),
    response_model=JobPage,
)
def list_jobs(
    jobs: Service[JobService],
    limit: PageLimit,
    tenant: ReadingTenant,
    session: Reading,
    state: Annotated[JobState | None, Query(description="only jobs in this state")] = None,
    kind: Annotated[str | None, Query(description="only jobs of this kind")] = None,
    space: Annotated[
        str | None, Query(description="only jobs about the space of this name")
    ] = None,
    cursor: Cursor = None,
) -> Response:
    """The jobs, newest first, without the names of models among their parameters.

    Finished jobs are listed as long as they are kept.
    """
    page = jobs.list(
        session,
        tenant,
        limit=limit,
        cursor=cursor,
        state=state,
        kind=kind,
        space=None if space is None else check_space_name(space),
    )
    return page_answer(map(JobOut.listed, page.items), page.next_cursor)


@in_endpoint_thread
def _job(
    jobs: Service[JobService], tenant: ReadingTenant, session: Reading, job: JobId
) -> JobRecord:
    return jobs.get(session, tenant, job)


KnownJob = Annotated[JobRecord, Depends(_job)]


@router.get(
    "/v1/jobs/{job}", operation_id="get_job", responses=problems(JobNotFound, InvalidParameter)
)
def show(job: KnownJob) -> JobOut:
    """One job."""
    return JobOut.of(job)


@router.post(
    "/v1/jobs/{job}/cancel",
    operation_id="cancel_job",
    responses=problems(JobNotFound, InvalidParameter, JobFinished, StorageFull),
    status_code=202,
)
def cancel(
    jobs: Service[JobService], tenant: WritingTenant, session: Writing, job: JobId
) -> JobOut:
    """Cancel a job. A queued job is cancelled at once.

    A running job is `cancelling` until its handler notices, and can no longer succeed. A job that
    has succeeded or failed is a 409.
    """
    return JobOut.of(jobs.cancel(session, tenant, job))


@router.get(
    "/v1/jobs/{job}/events",
    operation_id="follow_job",
    response_class=Response,
    responses={
        200: {
            "content": {EVENTS: {"schema": {"type": "string"}}},
            "description": "Server-sent events, whose `data` is the job and whose `id` its "
            "revision: one at once, and one after each change. The last one is a finished job",
        },
        204: {"description": "The job has ended, and the client knows its last revision"},
        **problems(JobNotFound, InvalidParameter, QueueFull, RateLimited),
    },
)
def follow(
    watcher: Service[JobWatcher],
    identity: Caller,
    job: KnownJob,
    last: Annotated[
        str | None, Header(alias="Last-Event-ID", description="the `id` of the last event received")
    ] = None,
) -> Response:
    """Follow a job to its end, as server-sent events.

    An `EventSource` resumes a stream that broke off by itself; a 204 makes it stop. A tenant may
    have 50 streams open at a time. A stream ends within a minute after its key was revoked.
    """
    known = int(last) if last is not None and last.isdecimal() and len(last) < 19 else None
    if job.finished and known == job.revision:
        return Response(status_code=204)
    return _EventStream(partial(watcher.open, job, identity), watcher, known)


class _EventStream(StreamingResponse):
    """The events of a stream, which has its place only while they are sent.

    Args:
        open_stream: takes the place; what refuses it is the answer.
        watcher: is given the place back, however the answer ends.
        known: the revision that the client knows.
    """

    def __init__(
        self, open_stream: Callable[[], JobStream], watcher: JobWatcher, known: int | None
    ) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__((), media_type=EVENTS, headers=headers)
        self._open = open_stream
        self._watcher = watcher
        self._known = known

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        stream = self._open()
        self.body_iterator = _events(self._watcher, stream, self._known)
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._watcher.close(stream)


async def _events(
    watcher: JobWatcher, stream: JobStream, known: int | None
) -> AsyncIterator[bytes]:
    yield format_sse_event(retry=_RECONNECT_MS)
    sent = time.monotonic()
    async for now in watcher.follow(stream, known):
        if now is not None:
            yield format_sse_event(data_str=JobOut.of(now).model_dump_json(), id=str(now.revision))
        elif time.monotonic() - sent > _KEEPALIVE_INTERVAL_S:
            yield format_sse_event(comment="still here")
        else:
            continue
        sent = time.monotonic()
