"""/v1/sources: the hubs whose models are followed, and their hub events."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body, Depends, Path, Response

from app.auth.dependencies import (
    AUTHENTICATED,
    REFUSALS,
    AuthenticatedJsonRoute,
    ReadingTenant,
    WritingTenant,
)
from app.errors import Conflict, QuotaExceeded, SecretKeyMissing, SourceNotFound, StorageFull
from app.hubs.endpoints.schemas import (
    HubEventOut,
    HubEventPage,
    SourceChanges,
    SourceNew,
    SourceOut,
    SourcePage,
)
from app.hubs.service import SourceService
from app.idempotency.dependencies import Once
from app.infra.http.answers import PageLimit, page_answer
from app.infra.http.bodies import BODY_PROBLEMS
from app.infra.http.dependencies import Cursor, Reading, Writing
from app.infra.http.openapi import problems
from app.infra.http.services import Service
from app.infra.http.url_checks import UrlChecker
from app.jobs.endpoints import accepted
from app.jobs.schemas import JobOut
from modelkin.errors import InvalidName, InvalidParameter

__all__ = ["router"]

router = APIRouter(
    prefix="/v1/sources",
    tags=["sources"],
    route_class=AuthenticatedJsonRoute,
    dependencies=AUTHENTICATED,
    responses=REFUSALS,
)

SourceId = Annotated[str, Path(description="the id of the source")]


async def _new(
    urls: Service[UrlChecker], _: WritingTenant, body: Annotated[SourceNew, Body()]
) -> SourceNew:
    await urls.require(body.url)
    return body


async def _changes(
    urls: Service[UrlChecker], _: WritingTenant, body: Annotated[SourceChanges, Body()]
) -> SourceChanges:
    await urls.require(body.url)
    return body


# Before `session` among an endpoint's parameters: a DNS lookup must not hold a connection.
New = Annotated[SourceNew, Depends(_new)]
Changes = Annotated[SourceChanges, Depends(_changes)]


@router.post(
    "",
    operation_id="create_source",
    summary="Follow the models of a hub",
    responses=problems(
        *BODY_PROBLEMS,
        InvalidParameter,
        InvalidName,
        SecretKeyMissing,
        StorageFull,
        QuotaExceeded,
    ),
    status_code=201,
)
def create(
    sources: Service[SourceService],
    tenant: WritingTenant,
    body: New,
    session: Writing,
    once: Once,
    response: Response,
) -> SourceOut:
    """Follow the models of a hub, by the events sent to the source's `hook` and by polls."""
    del once
    source = sources.create(session, tenant, body.wanted())
    response.headers["Location"] = f"/v1/sources/{source.id}"
    return SourceOut.of(source)


@router.get(
    "",
    operation_id="list_sources",
    summary="List the hubs that are followed",
    responses=problems(InvalidParameter),
    response_model=SourcePage,
)
def list_sources(
    sources: Service[SourceService],
    limit: PageLimit,
    tenant: ReadingTenant,
    session: Reading,
    cursor: Cursor = None,
) -> Response:
    """The sources, newest first."""
    page = sources.list(session, tenant, limit=limit, cursor=cursor)
    return page_answer(map(SourceOut.of, page.items), page.next_cursor)


@router.get(
    "/{source}",
    operation_id="get_source",
    summary="Show a source and its last events",
    responses=problems(SourceNotFound, InvalidParameter),
)
def show(
    sources: Service[SourceService], tenant: ReadingTenant, session: Reading, source: SourceId
) -> SourceOut:
    """One source: its settings, and its last events and errors."""
    return SourceOut.of(sources.get(session, tenant, source))


@router.patch(
    "/{source}",
    operation_id="update_source",
    summary="Change the settings of a source",
    responses=problems(
        *BODY_PROBLEMS, SourceNotFound, InvalidParameter, InvalidName, SecretKeyMissing, StorageFull
    ),
)
def update(
    sources: Service[SourceService],
    tenant: WritingTenant,
    body: Changes,
    session: Writing,
    source: SourceId,
) -> SourceOut:
    """Change the given fields. A new `secret` verifies the next hub event.

    A `url` on another host requires the `token` again, and a `url` of null deletes the token.
    """
    return SourceOut.of(sources.update(session, tenant, source, body.wanted()))


@router.delete(
    "/{source}",
    operation_id="delete_source",
    summary="Stop following a hub",
    responses=problems(SourceNotFound, InvalidParameter, StorageFull),
    status_code=204,
)
def delete(
    sources: Service[SourceService], tenant: WritingTenant, session: Writing, source: SourceId
) -> None:
    """Delete a source. The models that came from it stay."""
    sources.delete(session, tenant, source)


@router.get(
    "/{source}/deliveries",
    operation_id="list_source_deliveries",
    summary="List the hub events of a source",
    responses=problems(SourceNotFound, InvalidParameter),
    response_model=HubEventPage,
)
def list_hub_events(
    sources: Service[SourceService],
    limit: PageLimit,
    tenant: ReadingTenant,
    session: Reading,
    source: SourceId,
    cursor: Cursor = None,
) -> Response:
    """The hub events of a source, newest first, with their outcomes."""
    found = sources.get(session, tenant, source)
    page = sources.hub_events(session, found, limit=limit, cursor=cursor)
    return page_answer(map(HubEventOut.of, page.items), page.next_cursor)


@router.post(
    "/{source}/poll",
    operation_id="poll_source",
    summary="Compare the listing of a hub now",
    responses=problems(SourceNotFound, InvalidParameter, Conflict, StorageFull),
    status_code=202,
)
def poll(
    sources: Service[SourceService],
    tenant: WritingTenant,
    session: Writing,
    source: SourceId,
    response: Response,
) -> JobOut:
    """Compare the hub's listing now. While a poll is queued, its job is the answer.

    A source without a url, or of all models of the public hub, is a 409.
    """
    return accepted(response, sources.poll(session, tenant, source))
