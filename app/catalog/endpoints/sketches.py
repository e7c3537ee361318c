"""/v1/spaces/{space}/sketches/{model}: what a sample of coordinates shows of a support."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Response

from app.auth.dependencies import AUTHENTICATED, REFUSALS
from app.catalog.dependencies import ModelName, Stated
from app.catalog.endpoints.payloads import SKETCH_BODY, SKETCH_CONTENT, SketchPayload
from app.catalog.schemas import ModelOut, etag
from app.catalog.sketches import SketchService
from app.errors import (
    ModelNotFound,
    NotAcceptable,
    PreconditionFailed,
    SketchMissing,
    StorageFull,
    SupportExists,
)
from app.infra.http.bodies import BODY_PROBLEMS
from app.infra.http.dependencies import Reading, Writing
from app.infra.http.endpoint_threads import ThreadRoute
from app.infra.http.negotiation import choose
from app.infra.http.openapi import problems
from app.infra.http.preconditions import IfMatch
from app.infra.http.routing import MODEL
from app.infra.http.services import Service
from app.spaces.dependencies import SUPPORT_SPACE_PROBLEMS, SupportSpace, WritableSupportSpace
from modelkin import wire
from modelkin.errors import InvalidParameter, InvalidSignature, SpaceMismatch

__all__ = ["router"]

router = APIRouter(
    prefix="/v1/spaces/{space}/sketches",
    tags=["models"],
    route_class=ThreadRoute,
    dependencies=AUTHENTICATED,
    responses=REFUSALS,
)


@router.put(
    MODEL,
    operation_id="put_sketch",
    summary="Store a sketch beside a signature",
    status_code=201,
    responses={
        200: {"model": ModelOut, "description": "Replaced, or the same sketch again"},
        **problems(
            *SUPPORT_SPACE_PROBLEMS,
            *BODY_PROBLEMS,
            ModelNotFound,
            InvalidSignature,
            InvalidParameter,
            SpaceMismatch,
            SupportExists,
            PreconditionFailed,
            StorageFull,
        ),
    },
    openapi_extra=SKETCH_BODY,
)
def put(
    sketches: Service[SketchService],
    payload: SketchPayload,
    name: ModelName,
    origin: Stated,
    space: WritableSupportSpace,
    session: Writing,
    response: Response,
    precondition: IfMatch,
) -> ModelOut:
    """Store the sketch of a model that sent a signature alone, for sharper estimates of it.

    It is of 65,536 coordinates with seed 1, as `support.sketch()` makes it, and goes when another
    signature is stored. 404 where there is no model yet, 409 where it has a support.
    """
    sketch = payload.sketch(space.num_parameters)
    stored = sketches.put(session, space, name, sketch, precondition=precondition, origin=origin)
    response.status_code = 201 if stored.status == "created" else 200
    response.headers.update(etag(stored.model))
    return ModelOut.of(space, stored.model)


@router.get(
    MODEL,
    operation_id="get_sketch",
    summary="Download the sketch of a model",
    response_class=Response,
    responses={
        200: {"content": SKETCH_CONTENT, "description": "The sketch"},
        **problems(*SUPPORT_SPACE_PROBLEMS, ModelNotFound, SketchMissing, NotAcceptable),
    },
)
def get(
    sketches: Service[SketchService],
    name: ModelName,
    space: SupportSpace,
    session: Reading,
    accept: Annotated[str | None, Header()] = None,
) -> Response:
    """The sketch of a model: the one it sent, or the one made here of its support."""
    media_type = choose(accept, (wire.SKETCH,))
    model, sketch = sketches.get(session, space, name)
    headers = {**etag(model), "Vary": "Accept"}
    return Response(sketch.to_bytes(), media_type=media_type, headers=headers)
