"""/v1/sources: the hubs whose models are followed, and their hub events."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Response

from app.hubs.endpoints.schemas import (
    HubEventOut,
    HubEventPage,
    SourceChanges,
    SourceNew,
    SourceOut,
    SourcePage,
)
from app.hubs.records import SourceRecord
from app.hubs.service import SourceService
from app.infra.db.database import Reader
from app.infra.errors import Conflict, QuotaExceeded, SecretKeyMissing, SourceNotFound
from app.infra.http.answers import Answer, PageLimit, page_answer
from app.infra.http.dependencies import Cursor
from app.infra.http.requests.url_checks import UrlBody
from app.infra.http.routes import Routes
from app.infra.http.services import Service
from app.jobs.endpoints import job_answer
from app.jobs.schemas import JobOut
from app.tenancy.auth.dependencies import (
    AUTHENTICATED,
    REFUSALS,
    ReadingContext,
    WritingContext,
)
from app.tenancy.idempotency.dependencies import Once
from modelkin.errors import InvalidName, InvalidParameter

__all__ = ["routes"]

routes = Routes(
    prefix="/v1/sources",
    tags=["sources"],
    dependencies=AUTHENTICATED,
    responses=REFUSALS,
)

SourceId = Annotated[str, Path(description="the id of the source")]


@routes.post(
    "",
    operation_id="create_source",
    summary="Follow the models of a hub",
    refuses=(InvalidName, SecretKeyMissing, QuotaExceeded),
    status_code=201,
)
def create(
    context: WritingContext,
    sources: Service[SourceService],
    received: UrlBody[SourceNew],
    once: Once,
) -> Answer[SourceOut] | Response:
    """Follow the models of a hub, by the events sent to the source's `hook` and by polls."""
    body = received.read()
    with context.writing() as session:
        if (kept := once.find_answer(session)) is not None:
            return kept
        source = sources.create(session, context.tenant, body.to_source())
        location = {"Location": f"/v1/sources/{source.id}"}
        return once.keep(session, Answer(_shown(sources, session, source), 201, location))


@routes.get(
    "",
    operation_id="list_sources",
    summary="List the hubs that are followed",
    refuses=(InvalidParameter,),
    response_model=SourcePage,
)
def list_sources(
    context: ReadingContext,
    sources: Service[SourceService],
    limit: PageLimit,
    cursor: Cursor = None,
) -> Response:
    """The sources, newest first."""
    with context.reading() as session:
        page = sources.list(session, context.tenant, limit=limit, cursor=cursor)
        counts = sources.fingerprint_counts(session, page.items)
    shown = (SourceOut.of(source, counts[source.id]) for source in page.items)
    return page_answer(shown, page.next_cursor)


@routes.get(
    "/{source}",
    operation_id="get_source",
    summary="Show a source and its last events",
    refuses=(SourceNotFound, InvalidParameter),
)
def show(
    context: ReadingContext,
    sources: Service[SourceService],
    source: SourceId,
) -> SourceOut:
    """One source: its settings, and its last events and errors."""
    with context.reading() as session:
        return _shown(sources, session, sources.get(session, context.tenant, source))


@routes.patch(
    "/{source}",
    operation_id="update_source",
    summary="Change the settings of a source",
    refuses=(SourceNotFound, InvalidName, SecretKeyMissing),
)
def update(
    context: WritingContext,
    sources: Service[SourceService],
    received: UrlBody[SourceChanges],
    source: SourceId,
) -> SourceOut:
    """Change the given fields. A new `secret` verifies the next hub event.

    A `url` on another host requires the `token` again, and a `url` of null deletes the token.
    """
    body = received.read()
    with context.writing() as session:
        changed = sources.update(session, context.tenant, source, body.to_changes())
        return _shown(sources, session, changed)


@routes.delete(
    "/{source}",
    operation_id="delete_source",
    summary="Stop following a hub",
    refuses=(SourceNotFound, InvalidParameter),
    status_code=204,
)
def delete(
    context: WritingContext,
    sources: Service[SourceService],
    source: SourceId,
) -> None:
    """Delete a source, and cancel its jobs. The models that came from it stay."""
    with context.writing() as session:
        sources.delete(session, context.tenant, source)


@routes.get(
    "/{source}/deliveries",
    operation_id="list_source_deliveries",
    summary="List the hub events of a source",
    refuses=(SourceNotFound, InvalidParameter),
    response_model=HubEventPage,
)
def list_hub_events(
    context: ReadingContext,
    sources: Service[SourceService],
    limit: PageLimit,
    source: SourceId,
    cursor: Cursor = None,
) -> Response:
    """The hub events of a source, newest first, with their outcomes."""
    with context.reading() as session:
        found = sources.get(session, context.tenant, source)
        page = sources.hub_events(session, found, limit=limit, cursor=cursor)
    return page_answer(map(HubEventOut.of, page.items), page.next_cursor)


@routes.post(
    "/{source}/poll",
    operation_id="poll_source",
    summary="Compare the listing of a hub now",
    refuses=(SourceNotFound, InvalidParameter, Conflict),
    status_code=202,
)
def poll(
    context: WritingContext,
    sources: Service[SourceService],
    source: SourceId,
) -> Answer[JobOut]:
    """Compare the hub's listing now. While a poll is queued, its job is the answer.

    A source without a url, or of all models of the public hub, is a 409.
    """
    with context.writing() as session:
        return job_answer(sources.poll(session, context.tenant, source))


def _shown(sources: SourceService, session: Reader, source: SourceRecord) -> SourceOut:
    """A source with the counts of its models."""
    return SourceOut.of(source, sources.fingerprint_counts(session, [source])[source.id])
