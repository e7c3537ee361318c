"""/v1/jobs: background jobs, listed, shown, followed and cancelled."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Path, Query, Response

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
from app.infra.http.event_stream import EVENTS, EventStream, known_revision
from app.infra.http.openapi import problems
from app.infra.http.services import Service
from app.jobs.records import JobRecord, JobState
from app.jobs.schemas import JobOut, JobPage
from app.jobs.service import JobService
from app.jobs.watcher import JobWatcher
from modelkin._validation import check_space_name
from modelkin.errors import InvalidName, InvalidParameter

__all__ = ["accepted", "router"]

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
    summary="List the jobs, newest first",
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
    "/v1/jobs/{job}",
    operation_id="get_job",
    summary="Show the state of a job",
    responses=problems(JobNotFound, InvalidParameter),
)
def show(job: KnownJob) -> JobOut:
    """One job."""
    return JobOut.of(job)


@router.post(
    "/v1/jobs/{job}/cancel",
    operation_id="cancel_job",
    summary="Cancel a queued or running job",
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
    summary="Follow a job to its end",
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
    known = known_revision(last)
    if job.finished and known == job.revision:
        return Response(status_code=204)
    return EventStream(partial(watcher.open, job, identity), watcher, known, JobOut.of)
