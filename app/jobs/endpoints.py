"""/v1/jobs: what takes longer than an answer: listed, shown, followed and cancelled."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Path, Query, Response
from fastapi.sse import format_sse_event
from starlette.responses import StreamingResponse

from app.auth.dependencies import (
    AUTHENTICATED,
    REFUSALS,
    AuthenticatedJsonRoute,
    ReadingTenant,
    WritingTenant,
)
from app.errors import JobFinished, JobNotFound, StorageFull
from app.infra.http.dependencies import Cursor, Limit, Reading, Writing
from app.infra.http.openapi import problems
from app.infra.http.services import Service
from app.jobs.records import JobRecord, JobState
from app.jobs.schemas import JobOut, JobPage
from app.jobs.service import JobService
from app.jobs.watcher import JobWatcher
from modelkin._validation import check_space_name
from modelkin.errors import InvalidName, InvalidParameter

__all__ = ["accepted", "router"]

EVENTS = "text/event-stream"

_HEARTBEAT = 15.0
"""Seconds without a word after which a comment says that the stream lives."""
_RECONNECT = 2000
"""Milliseconds before a client comes back whose stream broke off."""

router = APIRouter(
    tags=["jobs"],
    route_class=AuthenticatedJsonRoute,
    dependencies=AUTHENTICATED,
    responses=REFUSALS,
)

JobId = Annotated[str, Path(description="the id of the job")]


def accepted(response: Response, job: JobRecord) -> JobOut:
    """The answer of an operation that has made a job: 202, and where the job is."""
    response.status_code = 202
    response.headers["Location"] = f"/v1/jobs/{job.id}"
    return JobOut.of(job)


@router.get("/v1/jobs", operation_id="list_jobs", responses=problems(InvalidParameter, InvalidName))
def list_jobs(
    jobs: Service[JobService],
    tenant: ReadingTenant,
    session: Reading,
    state: Annotated[JobState | None, Query(description="only jobs in this state")] = None,
    kind: Annotated[str | None, Query(description="only jobs of this kind")] = None,
    space: Annotated[
        str | None, Query(description="only jobs about the space of this name")
    ] = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> JobPage:
    """The jobs, newest first; those that have ended for as long as they are kept."""
    page = jobs.list(
        session,
        tenant,
        limit=limit,
        cursor=cursor,
        state=state,
        kind=kind,
        space=None if space is None else check_space_name(space),
    )
    return JobPage.of(page.items, page.next_cursor)


def _job(
    jobs: Service[JobService], tenant: ReadingTenant, session: Reading, job: JobId
) -> JobRecord:
    return jobs.get(session, tenant, job)


KnownJob = Annotated[JobRecord, Depends(_job)]


@router.get("/v1/jobs/{job}", operation_id="get_job", responses=problems(JobNotFound))
def show(job: KnownJob) -> JobOut:
    """One job."""
    return JobOut.of(job)


@router.post(
    "/v1/jobs/{job}/cancel",
    operation_id="cancel_job",
    responses=problems(JobNotFound, JobFinished, StorageFull),
    status_code=202,
)
def cancel(
    jobs: Service[JobService], tenant: WritingTenant, session: Writing, job: JobId
) -> JobOut:
    """Cancel a job. One that waits is cancelled at once; one that runs is `cancelling` until it
    hears of it, and does not succeed any more. One that has succeeded or failed is a 409.
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
            "revision: at once, and whenever it has changed. The last one is a job that has ended",
        },
        204: {"description": "It has ended, and that was told: there is nothing to wait for"},
        **problems(JobNotFound),
    },
)
async def follow(
    watcher: Service[JobWatcher],
    job: KnownJob,
    last: Annotated[
        str | None, Header(alias="Last-Event-ID", description="the `id` that was heard last")
    ] = None,
) -> Response:
    """Follow a job to its end, as server-sent events.

    A stream that breaks off is taken up again by whatever reads `EventSource`; 204 then tells it to
    stop.
    """
    known = int(last) if last is not None and last.isdecimal() and len(last) < 19 else None
    if job.finished and known == job.revision:
        return Response(status_code=204)
    watcher.require_room()
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(_told(watcher, job, known), media_type=EVENTS, headers=headers)


async def _told(watcher: JobWatcher, job: JobRecord, known: int | None) -> AsyncIterator[bytes]:
    yield format_sse_event(retry=_RECONNECT)
    heard = time.monotonic()
    async for now in watcher.follow(job, known):
        if now is not None:
            yield format_sse_event(data_str=JobOut.of(now).model_dump_json(), id=str(now.revision))
        elif time.monotonic() - heard > _HEARTBEAT:
            yield format_sse_event(comment="still here")
        else:
            continue
        heard = time.monotonic()
