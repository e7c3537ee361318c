"""``/jobs``, ``/jobs/{job}`` and ``/spaces/{space}/jobs``: work that outlasts a request."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Final
from urllib.parse import quote

from fastapi import Query, Request
from fastapi.responses import HTMLResponse

from app.infra.db.database import Reader
from app.infra.http.dependencies import Cursor
from app.infra.http.services import Service
from app.jobs.records import JobRecord, JobState
from app.jobs.schemas import without_models
from app.jobs.service import JobService
from app.models.spaces.dependencies import SpaceName
from app.models.spaces.records import SpaceRecord
from app.models.spaces.service import SpaceService
from app.tenancy.auth.dependencies import ReadingContext
from app.tenancy.auth.records import Tenant
from app.ui import programs
from app.ui.operations import duration, kind_in_words, what_to_do
from app.ui.rendering import PageRoutes, render
from modelkin._validation import check_space_name, quote_model

__all__ = ["routes"]

routes = PageRoutes()

_PAGE_SIZE: Final = 30
_STATES: Final[tuple[JobState, ...]] = ("queued", "running", "succeeded", "failed", "cancelled")
_MAX_TEXT: Final = 200

State = Annotated[str, Query(max_length=_MAX_TEXT)]


@routes.get("/jobs")
def jobs(
    context: ReadingContext,
    service: Service[JobService],
    request: Request,
    state: State = "",
    kind: Annotated[str, Query(max_length=_MAX_TEXT)] = "",
    space: Annotated[str, Query(max_length=_MAX_TEXT)] = "",
    cursor: Cursor = None,
) -> HTMLResponse:
    """Every job of the tenant, newest first, or those of a state, a kind or a space."""
    with context.reading() as session:
        name = check_space_name(space.strip()) if space.strip() else None
        return _job_page(
            request, service, context.tenant, session, state, kind, name, cursor, space=None
        )


@routes.get("/spaces/{space}/jobs")
def jobs_of_space(
    context: ReadingContext,
    spaces: Service[SpaceService],
    service: Service[JobService],
    space_name: SpaceName,
    request: Request,
    state: State = "",
    kind: Annotated[str, Query(max_length=_MAX_TEXT)] = "",
    cursor: Cursor = None,
) -> HTMLResponse:
    """The jobs about one space."""
    with context.reading() as session:
        space = spaces.get(session, context.tenant, space_name)
        return _job_page(
            request, service, context.tenant, session, state, kind, space.name, cursor, space=space
        )


@routes.get("/jobs/{job}")
def job(
    context: ReadingContext,
    service: Service[JobService],
    request: Request,
    job: str,
) -> HTMLResponse:
    """One job, from its progress to its result."""
    with context.reading() as session:
        shown = service.get(session, context.tenant, job)
    return render(
        request,
        "job.html",
        job=shown,
        kind=kind_in_words(shown.kind),
        took=_took(shown),
        links=_results(shown),
        advice=what_to_do(shown.error),
        parameters=without_models(shown.parameters),
        programs=programs.of_job(request, shown.id),
    )


def _job_page(
    request: Request,
    service: JobService,
    tenant: Tenant,
    session: Reader,
    state: str,
    kind: str,
    name: str | None,
    cursor: str | None,
    *,
    space: SpaceRecord | None,
) -> HTMLResponse:
    wanted = next((known for known in _STATES if known == state), None)
    page = service.list(
        session,
        tenant,
        limit=_PAGE_SIZE,
        cursor=cursor,
        state=wanted,
        kind=kind or None,
        space=name,
    )
    return render(
        request,
        "jobs.html",
        space=space,
        page=page,
        state=wanted or "",
        states=_STATES,
        kind=kind,
        kinds=[(each, kind_in_words(each)) for each in sorted(_tenants(service))],
        named=name or "",
        cursor=cursor,
        kind_in_words=kind_in_words,
        took=_took,
    )


def _tenants(service: JobService) -> frozenset[str]:
    """The kinds of jobs that tenants have; all others are the service's own."""
    return service.kinds - {each.kind for each in service.periodic}


def _took(job: JobRecord) -> str | None:
    """The time that the job has run, in words; None before it has begun."""
    if job.started_at is None:
        return None
    return duration((job.finished_at or datetime.now(UTC)) - job.started_at)


def _results(job: JobRecord) -> list[tuple[str, str]]:
    """The pages of the job's results and subjects: text and path."""
    result = job.result or {}
    space = result.get("space") or job.space
    found: list[tuple[str, str]] = []
    for each in (result.get("components") or {"": result}).values():
        place, model = each.get("space") or job.space, each.get("model")
        if place and model and each.get("outcome") in {"stored", "unchanged"}:
            found.append((f"Model {model}", f"/spaces/{quote(place)}/models/{quote_model(model)}"))
    if space and (made := result.get("clustering")):
        found.append(("The clustering", f"/spaces/{quote(space)}/clusterings/{quote(made)}"))
    if space and result.get("map"):
        found.append(("The map", f"/spaces/{quote(space)}/map"))
    if source := job.parameters.get("source"):
        found.append(("Its source", f"/sources/{quote(source)}"))
    if space:
        found.append((f"Space {space}", f"/spaces/{quote(space)}"))
    return found
