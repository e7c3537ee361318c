"""/v1/spaces/{space}/sketches/{model}: samples of supports' coordinates."""

from __future__ import annotations

from fastapi import Response

from app.infra.errors import (
    ModelNotFound,
    NotAcceptable,
    PreconditionFailed,
    SketchMissing,
    SupportExists,
)
from app.infra.http.answers import Answer
from app.infra.http.dependencies import Accept
from app.infra.http.requests.negotiation import choose
from app.infra.http.requests.preconditions import NOT_MODIFIED, IfMatch, is_known
from app.infra.http.routes import Routes
from app.infra.http.routing import MODEL
from app.infra.http.services import Service
from app.models.catalog.dependencies import ModelName, Stated
from app.models.catalog.endpoints.payloads import SKETCH_BODY, SKETCH_CONTENT, SketchPayload
from app.models.catalog.schemas import ModelOut, etag
from app.models.catalog.sketches import SketchService
from app.models.spaces.dependencies import (
    KindName,
)
from app.models.spaces.service import SpaceService
from app.tenancy.auth.dependencies import AUTHENTICATED, REFUSALS, ReadingContext, WritingContext
from modelkin import wire
from modelkin.errors import SpaceMismatch

__all__ = ["routes"]

routes = Routes(
    prefix="/v1/spaces/{space}/sketches",
    tags=["models"],
    dependencies=AUTHENTICATED,
    responses=REFUSALS,
)


@routes.put(
    MODEL,
    operation_id="put_sketch",
    summary="Store a sketch beside a signature",
    status_code=201,
    refuses=(ModelNotFound, SpaceMismatch, SupportExists, PreconditionFailed),
    responses={200: {"model": ModelOut, "description": "Replaced, or the same sketch again"}},
    openapi_extra=SKETCH_BODY,
)
def put(
    context: WritingContext,
    spaces: Service[SpaceService],
    sketches: Service[SketchService],
    payload: SketchPayload,
    name: ModelName,
    origin: Stated,
    precondition: IfMatch,
    space_name: KindName,
) -> Answer[ModelOut]:
    """Store the sketch of a model that sent a signature alone, for sharper estimates of it.

    It is of 65,536 coordinates with seed 1, as `support.sketch()` makes it, and goes when another
    signature is stored. 404 where there is no model yet, 409 where it has a support.
    """
    with context.reading() as session:
        space = spaces.get(session, context.tenant, space_name, kind="supports")
    sketch = payload.sketch(space.num_parameters)
    with context.writing() as session:
        stored = sketches.put(
            session, space, name, sketch, precondition=precondition, origin=origin
        )
    return Answer(
        ModelOut.of(space, stored.model),
        status=201 if stored.status == "created" else 200,
        headers=etag(stored.model),
    )


@routes.get(
    MODEL,
    operation_id="get_sketch",
    summary="Download the sketch of a model",
    response_class=Response,
    refuses=(ModelNotFound, SketchMissing, NotAcceptable),
    responses={200: {"content": SKETCH_CONTENT, "description": "The sketch"}, **NOT_MODIFIED},
)
def get(
    context: ReadingContext,
    spaces: Service[SpaceService],
    sketches: Service[SketchService],
    name: ModelName,
    space_name: KindName,
    accept: Accept = None,
) -> Response:
    """The sketch of a model: the one it sent, or the one made here of its support."""
    with context.reading() as session:
        space = spaces.get(session, context.tenant, space_name, kind="supports")
        media_type = choose(accept, (wire.SKETCH,))
        model, sketch = sketches.get(session, space, name)
        headers = {**etag(model), "Vary": "Accept"}
    if is_known(context.request, model.version_tag):
        return Response(status_code=304, headers=headers)
    return Response(sketch.to_bytes(), media_type=media_type, headers=headers)
