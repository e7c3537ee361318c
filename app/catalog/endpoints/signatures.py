"""/v1/spaces/{space}/signatures/{model}: a signature alone, without the indices it was made of."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Response

from app.auth.dependencies import AUTHENTICATED, REFUSALS
from app.catalog.dependencies import ModelName, NewTags, Stated
from app.catalog.endpoints.payloads import SIGNATURE_BODY, SIGNATURE_CONTENT, SignaturePayload
from app.catalog.puts import Put
from app.catalog.reader import ModelReader
from app.catalog.schemas import StoredModelOut, etag
from app.catalog.shared_commits import SharedCommits
from app.errors import (
    ModelNotFound,
    NotAcceptable,
    PreconditionFailed,
    QuotaExceeded,
    StorageFull,
    SupportExists,
)
from app.infra.http.bodies import BODY_PROBLEMS
from app.infra.http.dependencies import Reading
from app.infra.http.endpoint_threads import ThreadRoute
from app.infra.http.negotiation import choose
from app.infra.http.openapi import problems
from app.infra.http.preconditions import PutCondition
from app.infra.http.routing import MODEL
from app.infra.http.services import Service
from app.spaces.dependencies import SUPPORT_SPACE_PROBLEMS, SupportSpace, WritableSupportSpace
from modelkin import wire
from modelkin.errors import InvalidParameter, InvalidSignature, SpaceMismatch

__all__ = ["router"]

router = APIRouter(
    prefix="/v1/spaces/{space}/signatures",
    tags=["models"],
    route_class=ThreadRoute,
    dependencies=AUTHENTICATED,
    responses=REFUSALS,
)


@router.put(
    MODEL,
    operation_id="put_signature",
    summary="Store a signature without its support",
    status_code=201,
    response_model_exclude_unset=True,
    responses={
        200: {"model": StoredModelOut, "description": "Replaced, or the same content again"},
        **problems(
            *SUPPORT_SPACE_PROBLEMS,
            *BODY_PROBLEMS,
            InvalidSignature,
            InvalidParameter,
            SpaceMismatch,
            SupportExists,
            PreconditionFailed,
            StorageFull,
            QuotaExceeded,
        ),
    },
    openapi_extra=SIGNATURE_BODY,
)
def put(
    commits: Service[SharedCommits],
    payload: SignaturePayload,
    name: ModelName,
    tags: NewTags,
    origin: Stated,
    space: WritableSupportSpace,
    reading: Reading,
    response: Response,
    precondition: PutCondition,
) -> StoredModelOut:
    """Store a signature alone, never the indices. 409 where the model has a support."""
    signature = payload.signature(space.num_parameters)
    put = Put(name, signature, tags=tags, precondition=precondition, origin=origin)
    reading.rollback()  # nothing is held while it waits for the disk
    stored = commits.put(space, put)
    response.status_code = 201 if stored.status == "created" else 200
    response.headers.update(etag(stored.model))
    return StoredModelOut.of_upload(space, stored.model, origin)


@router.get(
    MODEL,
    operation_id="get_signature",
    summary="Download the signature of a model",
    response_class=Response,
    responses={
        200: {"content": SIGNATURE_CONTENT, "description": "The signature"},
        **problems(*SUPPORT_SPACE_PROBLEMS, ModelNotFound, NotAcceptable),
    },
)
def get(
    reader: Service[ModelReader],
    name: ModelName,
    space: SupportSpace,
    session: Reading,
    accept: Annotated[str | None, Header()] = None,
) -> Response:
    """The signature of any model: the one it sent, or the one computed here from its support."""
    media_type = choose(accept, wire.SIGNATURE_TYPES)
    model = reader.model(session, space, name)
    signature = reader.signature(session, space, model)
    body = wire.dump_signature(signature, media_type)
    return Response(body, media_type=media_type, headers={**etag(model), "Vary": "Accept"})
