"""/v1/spaces: create, list, show and delete index spaces."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Body, Response

from app.auth.dependencies import (
    AUTHENTICATED,
    REFUSALS,
    AuthenticatedJsonRoute,
    ReadingTenant,
    WritingTenant,
)
from app.errors import QuotaExceeded, SpaceExists, StorageFull
from app.infra.db.database import Reader
from app.infra.http.answers import AnswerMemory, PageLimit, json_answer, page_answer
from app.infra.http.bodies import BODY_PROBLEMS
from app.infra.http.dependencies import Cursor, Reading, Writing
from app.infra.http.memory_budget import Reservation
from app.infra.http.openapi import problems
from app.infra.http.services import Service
from app.spaces.dependencies import SPACE_PROBLEMS, KnownSpace, WritableSpace
from app.spaces.records import SpaceRecord
from app.spaces.schemas import SpaceIn, SpaceOut, SpacePage, SpaceSummary
from app.spaces.service import BandingRequest, SpaceService
from app.spaces.support_sizes import SupportSizeRequest
from modelkin.core.layout import Layout
from modelkin.errors import InvalidLayout, InvalidName, InvalidParameter, InvalidSignature

__all__ = ["router"]

_LAYOUT_BYTES: Final = 30 << 20
"""Memory of a layout of a megabyte as JSON, while it is read and written."""

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
    tenant: WritingTenant,
    session: Writing,
    body: Annotated[SpaceIn, Body()],
    memory: AnswerMemory,
) -> Response:
    """Create an index space. The same body again is a 200, another of the same name a 409."""
    layout = None
    if body.layout is not None:
        layout = Layout.of((tensor.name, tensor.shape) for tensor in body.layout)
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
    )
    answer = _shown(spaces, session, space, memory)
    answer.status_code = 201 if created else 200
    answer.headers["Location"] = f"/v1/spaces/{space.name}"
    return answer


@router.get(
    "",
    operation_id="list_spaces",
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
    responses=problems(*SPACE_PROBLEMS),
    response_model=SpaceOut,
)
def show(
    spaces: Service[SpaceService], space: KnownSpace, session: Reading, memory: AnswerMemory
) -> Response:
    """One space, with its layout, its counts and its version."""
    return _shown(spaces, session, space, memory)


@router.delete(
    "/{space}",
    operation_id="delete_space",
    responses=problems(*SPACE_PROBLEMS, StorageFull),
    status_code=204,
)
def delete(spaces: Service[SpaceService], space: WritableSpace, session: Writing) -> None:
    """Delete the space and every model in it."""
    spaces.delete(session, space)


def _shown(
    spaces: SpaceService, session: Reader, space: SpaceRecord, memory: Reservation
) -> Response:
    """The answer with a space and its layout, in memory for that."""
    if space.layout_digest is not None:
        memory.take(_LAYOUT_BYTES)
    return json_answer(SpaceOut.with_layout(space, spaces.layout(session, space)))
