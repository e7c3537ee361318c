"""/v1/jobs: background jobs, listed, shown, followed and cancelled."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from fastapi import Header, Path, Query, Response

from app.infra.errors import JobFinished, JobNotFound, QueueFull, RateLimited
from app.infra.http.answers import Answer, PageLimit, page_answer
from app.infra.http.dependencies import Cursor
from app.infra.http.event_stream import EVENTS, EventStream, known_revision
from app.infra.http.routes import Routes
from app.infra.http.services import Service
from app.jobs.records import JobRecord, JobState
from app.jobs.schemas import JobOut, JobPage
from app.jobs.service import JobService
from app.jobs.watcher import JobWatcher
from app.tenancy.auth.dependencies import AUTHENTICATED, REFUSALS, ReadingContext, WritingContext
from modelkin._validation import check_space_name
from modelkin.errors import InvalidName, InvalidParameter

__all__ = ["job_answer", "routes"]

routes = Routes(tags=["jobs"], dependencies=AUTHENTICATED, responses=REFUSALS)

JobId = Annotated[str, Path(description="the id of the job")]


def job_answer(job: JobRecord) -> Answer[JobOut]:
    """The answer of an operation that has enqueued a job: 202 with the job's location."""
    return Answer(JobOut.of(job), 202, {"Location": f"/v1/jobs/{job.id}"})


@routes.get(
    "/v1/jobs",
    operation_id="list_jobs",
    summary="List the jobs, newest first",
    refuses=(InvalidParameter, InvalidName),
    response_model=JobPage,
)
def list_jobs(
    context: ReadingContext,
    jobs: Service[JobService],
    limit: PageLimit,
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
    with context.reading() as session:
        page = jobs.list(
            session,
            context.tenant,
            limit=limit,
            cursor=cursor,
            state=state,
            kind=kind,
            space=None if space is None else check_space_name(space),
        )
    return page_answer(map(JobOut.brief, page.items), page.next_cursor)


@routes.get(
    "/v1/jobs/{job}",
    operation_id="get_job",
    summary="Show the state of a job",
    refuses=(JobNotFound, InvalidParameter),
)
def show(context: ReadingContext, jobs: Service[JobService], job: JobId) -> JobOut:
    """One job."""
    with context.reading() as session:
        return JobOut.of(jobs.get(session, context.tenant, job))


@routes.post(
    "/v1/jobs/{job}/cancel",
    operation_id="cancel_job",
    summary="Cancel a queued or running job",
    refuses=(JobNotFound, InvalidParameter, JobFinished),
    status_code=202,
)
def cancel(context: WritingContext, jobs: Service[JobService], job: JobId) -> JobOut:
    """Cancel a job. A queued job is cancelled at once.

    A running job is `cancelling` until its handler notices, and can no longer succeed. A job that
    has succeeded or failed is a 409.
    """
    with context.writing() as session:
        return JobOut.of(jobs.cancel(session, context.tenant, job))


@routes.get(
    "/v1/jobs/{job}/events",
    operation_id="follow_job",
    summary="Follow a job to its end",
    response_class=Response,
    refuses=(JobNotFound, InvalidParameter, QueueFull, RateLimited),
    responses={
        200: {
            "content": {EVENTS: {"schema": {"type": "string"}}},
            "description": "Server-sent events, whose `data` is the job and whose `id` its "
            "revision: one at once, and one after each change. The last one is a finished job",
        },
        204: {"description": "The job has ended, and the client knows its last revision"},
    },
)
def follow(
    context: ReadingContext,
    jobs: Service[JobService],
    watcher: Service[JobWatcher],
    job: JobId,
    last: Annotated[
        str | None, Header(alias="Last-Event-ID", description="the `id` of the last event received")
    ] = None,
) -> Response:
    """Follow a job to its end, as server-sent events.

    An `EventSource` resumes a stream that broke off by itself; a 204 makes it stop. A tenant may
    have 50 streams open at a time. A stream ends within a minute after its key was revoked.
    """
    with context.reading() as session:
        followed = jobs.get(session, context.tenant, job)
    known = known_revision(last)
    if followed.finished and known == followed.revision:
        return Response(status_code=204)
    stream = partial(watcher.open, followed, context.identity)
    return EventStream(stream, watcher, known, JobOut.of)
