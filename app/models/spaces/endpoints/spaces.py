"""/v1/spaces: create, list, show and delete index spaces."""

from __future__ import annotations

from fastapi import Response

from app.infra.errors import QuotaExceeded, SpaceExists
from app.infra.http.answers import (
    LayoutMemory,
    PageLimit,
    binary_answer,
    page_answer,
)
from app.infra.http.dependencies import Cursor
from app.infra.http.requests.json_bodies import JsonBody
from app.infra.http.requests.memory_budget import Reservation
from app.infra.http.routes import Routes
from app.infra.http.services import Service
from app.models.spaces.dependencies import SpaceName
from app.models.spaces.records import SpaceRecord
from app.models.spaces.requested import BandingRequest, RequestedSpace
from app.models.spaces.schemas.answers import SpaceOut, SpacePage, SpaceSummary
from app.models.spaces.schemas.requests import SpaceIn
from app.models.spaces.service import SpaceService
from app.models.spaces.support_sizes import SupportSizeRequest
from app.tenancy.auth.dependencies import (
    AUTHENTICATED,
    REFUSALS,
    ReadingContext,
    WritingContext,
)
from modelkin import wire
from modelkin.errors import InvalidLayout, InvalidName, InvalidParameter, InvalidSignature

__all__ = ["routes"]

routes = Routes(
    prefix="/v1/spaces",
    tags=["spaces"],
    dependencies=AUTHENTICATED,
    responses=REFUSALS,
)


@routes.post(
    "",
    operation_id="create_space",
    summary="Create a space of comparable models",
    status_code=201,
    response_model=SpaceOut,
    refuses=(InvalidName, InvalidLayout, InvalidSignature, SpaceExists, QuotaExceeded),
    responses={200: {"model": SpaceOut, "description": "The same space already exists"}},
)
def create(
    context: WritingContext,
    spaces: Service[SpaceService],
    memory: LayoutMemory,
    received: JsonBody[SpaceIn],
) -> Response:
    """Create an index space. The same body again is a 200, another of the same name a 409."""
    body = received.read()
    with context.writing() as session:
        layout = body.stored_layout
        if layout is None:
            memory.release()
        spec = body.subspace_spec
        if spec is not None:
            space, created = spaces.create_of_subspaces(
                session, context.tenant, body.name, num_features=body.num_parameters, spec=spec
            )
            return _creation_answer(space, None, memory, created=created)
        size, cut = body.support_size, body.banding
        space, created = spaces.create(
            session,
            context.tenant,
            body.name,
            RequestedSpace(
                num_parameters=body.num_parameters,
                layout=layout,
                scheme=body.signature.scheme,
                num_perm=body.signature.num_perm,
                seed=body.signature.seed,
                banding=None
                if cut is None
                else BandingRequest(cut.bands, cut.rows, cut.similarity),
                support_size=None
                if size is None
                else SupportSizeRequest(size.policy, size.k, size.fraction),
                importance=None if body.importance is None else body.importance.to_importance(),
                exclude=tuple(body.exclude),
                blinding=body.blinding,
                ordered=body.ordered,
            ),
        )
    return _creation_answer(
        space, None if layout is None else layout.tensors, memory, created=created
    )


@routes.get(
    "",
    operation_id="list_spaces",
    summary="List the spaces by name",
    refuses=(InvalidParameter,),
    response_model=SpacePage,
)
def list_spaces(
    context: ReadingContext,
    spaces: Service[SpaceService],
    limit: PageLimit,
    cursor: Cursor = None,
) -> Response:
    """The spaces by name, without their layouts."""
    with context.reading() as session:
        page = spaces.list(session, context.tenant, limit=limit, cursor=cursor)
    return page_answer(map(SpaceSummary.of, page.items), page.next_cursor)


@routes.get(
    "/{space}",
    operation_id="get_space",
    summary="Show a space and its layout",
    response_model=SpaceOut,
)
def show(
    context: ReadingContext,
    spaces: Service[SpaceService],
    space_name: SpaceName,
    memory: LayoutMemory,
) -> Response:
    """One space, with its layout, its counts and its version."""
    with context.reading() as session:
        space = spaces.get(session, context.tenant, space_name)
        layout = spaces.layout_text(session, space)
    return _space_answer(space, layout, memory)


@routes.delete(
    "/{space}",
    operation_id="delete_space",
    summary="Delete a space with all its models",
    status_code=204,
)
def delete(
    context: WritingContext,
    spaces: Service[SpaceService],
    space_name: SpaceName,
) -> None:
    """Delete the space and every model in it."""
    with context.writing() as session:
        space = spaces.get(session, context.tenant, space_name)
        spaces.delete(session, space)


def _creation_answer(
    space: SpaceRecord, layout: str | None, memory: Reservation, *, created: bool
) -> Response:
    answer = _space_answer(space, layout, memory)
    answer.status_code = 201 if created else 200
    answer.headers["Location"] = f"/v1/spaces/{space.name}"
    return answer


def _space_answer(space: SpaceRecord, layout: str | None, memory: Reservation) -> Response:
    """A space with its layout, whose JSON is that of its row."""
    summary = SpaceSummary.of(space).model_dump_json()
    body = f'{summary[:-1]},"layout":{layout or "null"}}}'.encode()
    memory.keep(len(body))
    return binary_answer(body, wire.JSON, {})
