"""/v1/spaces/{space}/supports/{model}: storing a support and getting it back."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Response

from app.api.auth import AUTHENTICATED
from app.api.deps import (
    Handle,
    IfMatch,
    KnownSpace,
    ModelName,
    NewTags,
    Reading,
    WritableSpace,
    Writing,
)
from app.api.media import choose
from app.api.paths import MODEL
from app.api.payloads import SUPPORT_BODY, SUPPORT_CONTENT, SupportPayload
from app.api.schemas import ModelOut, etag
from app.services.rules import Put
from modelkin import wire

__all__ = ["router"]

router = APIRouter(
    prefix="/v1/spaces/{space}/supports", tags=["models"], dependencies=AUTHENTICATED
)


@router.put(
    MODEL,
    operation_id="put_support",
    status_code=201,
    responses={200: {"model": ModelOut, "description": "Replaced, or the same content again"}},
    openapi_extra=SUPPORT_BODY,
)
def put(
    resources: Handle,
    payload: SupportPayload,  # read before a connection is taken: a slow upload holds none
    name: ModelName,
    tags: NewTags,
    space: WritableSpace,
    reading: Reading,
    writing: Writing,
    response: Response,
    if_match: IfMatch = None,
) -> ModelOut:
    """Store a support, whole, with its tags. Once this answers, it is durable.

    The same content again changes nothing. A model that had only a signature becomes a full one.
    """
    reading.rollback()  # nothing is held while the body is decoded
    support = payload.support(space.num_parameters)
    prepared = resources.ingest.prepare(reading, space, name, support)
    stored = resources.ingest.put(writing, space, Put(name, prepared, tags=tags, if_match=if_match))
    response.status_code = 201 if stored.status == "created" else 200
    response.headers.update(etag(stored.model))
    return ModelOut.of(space, stored.model)


@router.get(
    MODEL,
    operation_id="get_support",
    response_class=Response,
    responses={200: {"content": SUPPORT_CONTENT, "description": "The support"}},
)
def get(
    resources: Handle,
    name: ModelName,
    space: KnownSpace,
    session: Reading,
    accept: Annotated[str | None, Header()] = None,
) -> Response:
    """The support, in the format that `Accept` asks for; the native one by default."""
    media_type = choose(accept, wire.SUPPORT_TYPES)
    model = resources.library.model(session, space, name)
    support = resources.library.support(space, model)
    body = wire.dump_support(support, media_type)
    return Response(body, media_type=media_type, headers={**etag(model), "Vary": "Accept"})
