"""/v1/fingerprints/{model}: the fingerprint of a model name, in no space."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Response

from app.fingerprints.dependencies import (
    FINGERPRINT_BODY,
    FINGERPRINT_CONTENT,
    FingerprintPayload,
    StatedByFilter,
    StatedFacts,
)
from app.fingerprints.records import FingerprintPut
from app.fingerprints.schemas import FingerprintOut, FingerprintPage, etag
from app.fingerprints.service import FingerprintService
from app.fingerprints.shared_commits import FingerprintCommits
from app.infra.errors import (
    FingerprintExists,
    FingerprintNotFound,
    NotAcceptable,
    PreconditionFailed,
    QuotaExceeded,
)
from app.infra.http.answers import Answer, PageLimit, json_answer, page_answer
from app.infra.http.dependencies import Accept, Cursor
from app.infra.http.requests.negotiation import choose
from app.infra.http.requests.preconditions import NOT_MODIFIED, IfMatch, PutCondition, is_known
from app.infra.http.routes import Routes
from app.infra.http.routing import MODEL
from app.infra.http.services import Service
from app.models.catalog.dependencies import ModelName, stored_text
from app.tenancy.auth.dependencies import AUTHENTICATED, REFUSALS, ReadingContext, WritingContext
from modelkin import wire
from modelkin.errors import InvalidParameter

__all__ = ["routes"]

routes = Routes(
    prefix="/v1/fingerprints",
    tags=["fingerprints"],
    dependencies=AUTHENTICATED,
    responses=REFUSALS,
)

_MAX_PREFIX = 200


@routes.put(
    MODEL,
    operation_id="put_fingerprint",
    summary="Store the fingerprint of a model",
    status_code=201,
    refuses=(FingerprintExists, PreconditionFailed, QuotaExceeded),
    responses={
        200: {"model": FingerprintOut, "description": "Replaced, or the same content again"}
    },
    openapi_extra=FINGERPRINT_BODY,
)
def put(
    context: WritingContext,
    service: Service[FingerprintService],
    commits: Service[FingerprintCommits],
    payload: FingerprintPayload,
    name: ModelName,
    facts: StatedFacts,
    precondition: PutCondition,
) -> Answer[FingerprintOut]:
    """Store the fingerprint of a model name, in no space. Once this answers, it is durable.

    The same again changes nothing; what the query says replaces what was said before. 409 where
    the service made another one from a hub's file. It may have 4 MiB and 20,000 tensors.
    """
    prepared = payload.prepare(service)
    put = FingerprintPut(name, prepared, "client", facts, precondition=precondition)
    stored = commits.put(context.tenant, put)
    return Answer(
        FingerprintOut.of(stored.record),
        status=201 if stored.created else 200,
        headers=etag(stored.record),
    )


@routes.get(
    "",
    operation_id="list_fingerprints",
    summary="List the fingerprints of all models",
    response_model=FingerprintPage,
    refuses=(InvalidParameter,),
)
def list_fingerprints(
    context: ReadingContext,
    service: Service[FingerprintService],
    limit: PageLimit,
    prefix: Annotated[
        str,
        Query(max_length=_MAX_PREFIX, description="only models whose name begins with this"),
    ] = "",
    stated_by: StatedByFilter = None,
    cursor: Cursor = None,
) -> Response:
    """The fingerprints by model name, without their keys."""
    with context.reading() as session:
        page = service.list(
            session,
            context.tenant,
            limit=limit,
            cursor=cursor,
            prefix=stored_text(prefix, "prefix"),
            stated_by=stated_by,
        )
    return page_answer(map(FingerprintOut.of, page.items), page.next_cursor)


@routes.get(
    MODEL,
    operation_id="get_fingerprint",
    summary="Show or download the fingerprint of a model",
    response_model=FingerprintOut,
    refuses=(FingerprintNotFound, NotAcceptable, InvalidParameter),
    responses={
        200: {"content": FINGERPRINT_CONTENT, "description": "What `Accept` asks for"},
        **NOT_MODIFIED,
    },
)
def get(
    context: ReadingContext,
    service: Service[FingerprintService],
    name: ModelName,
    accept: Accept = None,
) -> Response:
    """What is known of a fingerprint, as JSON; or the fingerprint, where `Accept` asks for that."""
    media_type = choose(accept, (wire.JSON, wire.FINGERPRINT))
    with context.reading() as session:
        record = service.get(session, context.tenant, name)
        headers = {**etag(record), "Vary": "Accept"}
        if is_known(context.request, record.version_tag):
            return Response(status_code=304, headers=headers)
        if media_type == wire.JSON:
            return json_answer(FingerprintOut.of(record), headers=headers)
        payload = service.payload(session, record)
    return Response(payload, media_type=media_type, headers=headers)


@routes.delete(
    MODEL,
    operation_id="delete_fingerprint",
    summary="Delete the fingerprint of a model",
    refuses=(FingerprintNotFound, PreconditionFailed, InvalidParameter),
    status_code=204,
)
def delete(
    context: WritingContext,
    service: Service[FingerprintService],
    name: ModelName,
    precondition: IfMatch,
) -> None:
    """Delete a fingerprint. The models of that name in spaces stay."""
    with context.writing() as session:
        service.delete(session, context.tenant, name, precondition)
