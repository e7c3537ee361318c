"""/v1/spaces/{space}/signatures/{model}: a signature alone, without the indices it was made of."""

from __future__ import annotations

from fastapi import Response

from app.infra.errors import (
    ModelNotFound,
    NotAcceptable,
    PreconditionFailed,
    QuotaExceeded,
    SupportExists,
)
from app.infra.http.answers import Answer
from app.infra.http.dependencies import Accept
from app.infra.http.requests.negotiation import choose
from app.infra.http.requests.preconditions import NOT_MODIFIED, PutCondition, is_known
from app.infra.http.routes import Routes
from app.infra.http.routing import MODEL
from app.infra.http.services import Service
from app.models.catalog.dependencies import ModelName, NewTags, Stated
from app.models.catalog.endpoints.payloads import (
    SIGNATURE_BODY,
    SIGNATURE_CONTENT,
    SignaturePayload,
)
from app.models.catalog.puts import Put
from app.models.catalog.reader import ModelReader
from app.models.catalog.schemas import StoredModelOut, etag
from app.models.catalog.shared_commits import SharedCommits
from app.models.spaces.dependencies import (
    KindName,
)
from app.models.spaces.service import SpaceService
from app.tenancy.auth.dependencies import AUTHENTICATED, REFUSALS, ReadingContext, WritingContext
from modelkin import wire
from modelkin.errors import SpaceMismatch

__all__ = ["routes"]

routes = Routes(
    prefix="/v1/spaces/{space}/signatures",
    tags=["models"],
    dependencies=AUTHENTICATED,
    responses=REFUSALS,
)


@routes.put(
    MODEL,
    operation_id="put_signature",
    summary="Store a signature without its support",
    status_code=201,
    response_model_exclude_unset=True,
    refuses=(SpaceMismatch, SupportExists, PreconditionFailed, QuotaExceeded),
    responses={
        200: {"model": StoredModelOut, "description": "Replaced, or the same content again"}
    },
    openapi_extra=SIGNATURE_BODY,
)
def put(
    context: WritingContext,
    spaces: Service[SpaceService],
    commits: Service[SharedCommits],
    payload: SignaturePayload,
    name: ModelName,
    tags: NewTags,
    origin: Stated,
    precondition: PutCondition,
    space_name: KindName,
) -> Answer[StoredModelOut]:
    """Store a signature alone, never the indices. 409 where the model has a support."""
    with context.reading() as session:
        space = spaces.get(session, context.tenant, space_name, kind="supports")
        signature = payload.signature(space.num_parameters)
        put = Put(name, signature, tags=tags, precondition=precondition, origin=origin)
        session.release()  # nothing is held while it waits for the disk
        stored = commits.put(space, put)
    return Answer(
        StoredModelOut.of_upload(space, stored.model, origin),
        status=201 if stored.status == "created" else 200,
        headers=etag(stored.model),
    )


@routes.get(
    MODEL,
    operation_id="get_signature",
    summary="Download the signature of a model",
    response_class=Response,
    refuses=(ModelNotFound, NotAcceptable),
    responses={
        200: {"content": SIGNATURE_CONTENT, "description": "The signature"},
        **NOT_MODIFIED,
    },
)
def get(
    context: ReadingContext,
    spaces: Service[SpaceService],
    reader: Service[ModelReader],
    name: ModelName,
    space_name: KindName,
    accept: Accept = None,
) -> Response:
    """The signature of any model: the one it sent, or the one computed here from its support."""
    with context.reading() as session:
        space = spaces.get(session, context.tenant, space_name, kind="supports")
        media_type = choose(accept, wire.SIGNATURE_TYPES)
        model = reader.model(session, space, name)
        headers = {**etag(model), "Vary": "Accept"}
        if is_known(context.request, model.version_tag):
            return Response(status_code=304, headers=headers)
        signature = reader.signature(session, space, model)
        body = wire.dump_signature(signature, media_type)
    return Response(body, media_type=media_type, headers=headers)
