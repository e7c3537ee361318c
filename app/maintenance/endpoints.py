"""/v1/spaces/{space}/jobs: the jobs that maintain a space, enqueued on request."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body, Response

from app.auth.dependencies import AUTHENTICATED, REFUSALS, AuthenticatedJsonRoute, WritingTenant
from app.errors import QueueFull, RateLimited, StorageFull
from app.idempotency.dependencies import Once
from app.infra.http.bodies import BODY_PROBLEMS
from app.infra.http.dependencies import Writing
from app.infra.http.openapi import problems
from app.infra.http.services import Service
from app.jobs.endpoints import accepted
from app.jobs.schemas import JobOut
from app.jobs.service import JobService
from app.maintenance.schemas import JobIn
from app.removed import JOB_KINDS
from app.spaces.dependencies import SUPPORT_SPACE_PROBLEMS, WritableSupportSpace
from modelkin.errors import InvalidParameter

__all__ = ["router"]

router = APIRouter(
    tags=["jobs"],
    route_class=AuthenticatedJsonRoute,
    dependencies=AUTHENTICATED,
    responses=REFUSALS,
)


@router.post(
    "/v1/spaces/{space}/jobs",
    operation_id="create_job",
    summary="Start a job of a space",
    responses=problems(
        *SUPPORT_SPACE_PROBLEMS,
        *BODY_PROBLEMS,
        InvalidParameter,
        StorageFull,
        QueueFull,
        RateLimited,
    ),
    status_code=202,
)
def create(
    jobs: Service[JobService],
    tenant: WritingTenant,
    space: WritableSupportSpace,
    session: Writing,
    once: Once,
    body: Annotated[JobIn, Body()],
    response: Response,
) -> JobOut:
    """Have something done to a space. While one of a kind waits or runs, it is the answer, and no
    second one is made.
    """
    del once
    if body.kind in JOB_KINDS:
        raise InvalidParameter(JOB_KINDS[body.kind], field="kind")
    job = jobs.enqueue(
        session,
        tenant,
        body.kind,
        {},
        space=space,
        dedup_key=f"space {space.id}",
    )
    return accepted(response, job)
