"""/v1/spaces: create, list, show and delete index spaces."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body, Response

from app.auth.dependencies import (
    AUTHENTICATED,
    REFUSALS,
    AuthenticatedJsonRoute,
    ReadingTenant,
    WritingTenant,
)
from app.errors import QuotaExceeded, SpaceExists, StorageFull
from app.infra.http.answers import (
    LayoutMemory,
    PageLimit,
    binary_answer,
    page_answer,
)
from app.infra.http.bodies import BODY_PROBLEMS
from app.infra.http.dependencies import Cursor, Reading, Writing
from app.infra.http.memory_budget import Reservation
from app.infra.http.openapi import problems
from app.infra.http.services import Service
from app.infra.http.short_reads import short_read
from app.spaces.dependencies import SPACE_PROBLEMS, KnownSpace, WritableSpace
from app.spaces.records import SpaceRecord
from app.spaces.schemas import SpaceIn, SpaceOut, SpacePage, SpaceSummary
from app.spaces.service import BandingRequest, SpaceService
from app.spaces.support_sizes import SupportSizeRequest
from modelkin import wire
from modelkin.errors import InvalidLayout, InvalidName, InvalidParameter, InvalidSignature

__all__ = ["router"]

router = APIRouter(
    prefix="/v1/spaces",
    tags=["spaces"],
    route_class=AuthenticatedJsonRoute,
    dependencies=AUTHENTICATED,
    responses=REFUSALS,
)


@router.post(
    "",
    operation_id="create_space",
    summary="Create a space of comparable models",
    status_code=201,
    response_model=SpaceOut,
    responses={
        200: {"model": SpaceOut, "description": "The same space already exists"},
        **problems(
            *BODY_PROBLEMS,
            InvalidParameter,
            InvalidName,
            InvalidLayout,
            InvalidSignature,
            SpaceExists,
            StorageFull,
            QuotaExceeded,
        ),
    },
)
def create(
    spaces: Service[SpaceService],
    memory: LayoutMemory,
    tenant: WritingTenant,
    session: Writing,
    body: Annotated[SpaceIn, Body()],
) -> Response:
    """Create an index space. The same body again is a 200, another of the same name a 409."""
    layout = body.stored_layout
    if layout is None:
        memory.release()
    spec = body.subspace_spec
    if spec is not None:
        space, created = spaces.create_of_subspaces(
            session, tenant, body.name, num_features=body.num_parameters, spec=spec
        )
        return _created(space, None, memory, created=created)
    size, cut = body.support_size, body.banding
    space, created = spaces.create(
        session,
        tenant,
        body.name,
        num_parameters=body.num_parameters,
        layout=layout,
        scheme=body.signature.scheme,
        num_perm=body.signature.num_perm,
        seed=body.signature.seed,
        banding=None if cut is None else BandingRequest(cut.bands, cut.rows, cut.similarity),
        support_size=None
        if size is None
        else SupportSizeRequest(size.policy, size.k, size.fraction),
        importance=None if body.importance is None else body.importance.checked(),
        exclude=tuple(body.exclude),
        blinding=body.blinding,
        ordered=body.ordered,
    )
    return _created(space, None if layout is None else layout.tensors, memory, created=created)


@router.get(
    "",
    operation_id="list_spaces",
    summary="List the spaces by name",
    responses=problems(InvalidParameter),
    response_model=SpacePage,
)
def list_spaces(
    spaces: Service[SpaceService],
    limit: PageLimit,
    tenant: ReadingTenant,
    session: Reading,
    cursor: Cursor = None,
) -> Response:
    """The spaces by name, without their layouts."""
    page = spaces.list(session, tenant, limit=limit, cursor=cursor)
    return page_answer(map(SpaceSummary.of, page.items), page.next_cursor)


@router.get(
    "/{space}",
    operation_id="get_space",
    summary="Show a space and its layout",
    responses=problems(*SPACE_PROBLEMS),
    response_model=SpaceOut,
)
@short_read
def show(
    spaces: Service[SpaceService], memory: LayoutMemory, space: KnownSpace, session: Reading
) -> Response:
    """One space, with its layout, its counts and its version."""
    layout = spaces.layout_text(session, space)
    session.release()
    return _shown(space, layout, memory)


@router.delete(
    "/{space}",
    operation_id="delete_space",
    summary="Delete a space with all its models",
    responses=problems(*SPACE_PROBLEMS, StorageFull),
    status_code=204,
)
def delete(spaces: Service[SpaceService], space: WritableSpace, session: Writing) -> None:
    """Delete the space and every model in it."""
    spaces.delete(session, space)


def _created(
    space: SpaceRecord, layout: str | None, memory: Reservation, *, created: bool
) -> Response:
    answer = _shown(space, layout, memory)
    answer.status_code = 201 if created else 200
    answer.headers["Location"] = f"/v1/spaces/{space.name}"
    return answer


def _shown(space: SpaceRecord, layout: str | None, memory: Reservation) -> Response:
    """A space with its layout, whose JSON is that of its row."""
    summary = SpaceSummary.of(space).model_dump_json()
    body = f'{summary[:-1]},"layout":{layout or "null"}}}'.encode()
    memory.keep(len(body))
    return binary_answer(body, wire.JSON, {})
