"""/v1/spaces/{space}/jobs: the jobs that maintain a space, enqueued on request."""

from __future__ import annotations

from fastapi import Response

from app.infra.errors import QueueFull, RateLimited
from app.infra.http.answers import Answer
from app.infra.http.requests.json_bodies import JsonBody
from app.infra.http.routes import Routes
from app.infra.http.services import Service
from app.jobs.endpoints import job_answer
from app.jobs.schemas import JobOut
from app.jobs.service import JobService
from app.models.spaces.dependencies import KindName
from app.models.spaces.service import SpaceService
from app.operations.maintenance.schemas import JobIn
from app.removed import JOB_KINDS
from app.tenancy.auth.dependencies import (
    AUTHENTICATED,
    REFUSALS,
    WritingContext,
)
from app.tenancy.idempotency.dependencies import Once
from modelkin.errors import InvalidParameter

__all__ = ["routes"]

routes = Routes(
    tags=["jobs"],
    dependencies=AUTHENTICATED,
    responses=REFUSALS,
)


@routes.post(
    "/v1/spaces/{space}/jobs",
    operation_id="create_job",
    summary="Start a job of a space",
    refuses=(QueueFull, RateLimited),
    status_code=202,
)
def create(
    context: WritingContext,
    spaces: Service[SpaceService],
    jobs: Service[JobService],
    space_name: KindName,
    once: Once,
    received: JsonBody[JobIn],
) -> Answer[JobOut] | Response:
    """Have something done to a space. While one of a kind waits or runs, it is the answer, and no
    second one is made.
    """
    body = received.read()
    if body.kind in JOB_KINDS:
        raise InvalidParameter(JOB_KINDS[body.kind], field="kind")
    with context.writing() as session:
        if (kept := once.find_answer(session)) is not None:
            return kept
        space = spaces.get(session, context.tenant, space_name, kind="supports")
        job = jobs.enqueue(
            session,
            context.tenant,
            body.kind,
            {},
            space=space,
            dedup_key=f"space {space.id}",
        )
        return once.keep(session, job_answer(job))
