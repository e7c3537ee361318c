"""/v1/spaces/{space}/maps: the models of a space in the plane, drawn by jobs."""

from __future__ import annotations

import gzip
from typing import Annotated, Final

from fastapi import APIRouter, Body, Response

from app.auth.dependencies import AUTHENTICATED, REFUSALS, AuthenticatedJsonRoute, WritingTenant
from app.errors import MapNotFound, QueueFull, RateLimited, StorageFull
from app.infra.http.answers import AnswerMemory, binary_answer
from app.infra.http.bodies import BODY_PROBLEMS
from app.infra.http.dependencies import Reading, Writing
from app.infra.http.openapi import problems
from app.infra.http.services import Service
from app.infra.http.turns import counts_as
from app.jobs.endpoints import accepted
from app.jobs.schemas import JobOut
from app.maps.schemas import MapIn, MapInfo, MapOut
from app.maps.service import MapService
from app.spaces.dependencies import SPACE_PROBLEMS, KnownSpace, WritableSpace
from modelkin.errors import InvalidParameter

__all__ = ["router"]

router = APIRouter(
    prefix="/v1/spaces/{space}/maps",
    tags=["kinship"],
    route_class=AuthenticatedJsonRoute,
    dependencies=AUTHENTICATED,
    responses=REFUSALS,
)

_BYTES_OF_A_MODEL: Final = 700
"""Memory of a model with a long name, as it is read and as it is written."""


@router.post(
    "",
    operation_id="create_map",
    summary="Start drawing a map of a space",
    responses=problems(
        *SPACE_PROBLEMS, *BODY_PROBLEMS, InvalidParameter, StorageFull, QueueFull, RateLimited
    ),
    status_code=202,
)
def create(
    maps: Service[MapService],
    tenant: WritingTenant,
    space: WritableSpace,
    session: Writing,
    body: Annotated[MapIn, Body()],
    response: Response,
) -> JobOut:
    """Draw all models of the space, as they are when the job begins, as a map.

    Each model is joined to its nearest neighbours, and the graph is laid out in the plane, so that
    neighbours lie near each other. The map replaces the one before. A repeated request gets the
    same job, until that has ended or the space has changed.
    """
    return accepted(response, maps.create(session, tenant, space, body.to_request()))


@router.get(
    "/latest",
    operation_id="get_latest_map",
    summary="Show the newest map of a space",
    responses=problems(*SPACE_PROBLEMS, MapNotFound),
    response_model=MapOut,
)
@counts_as("heavy")
def latest(
    maps: Service[MapService], space: KnownSpace, session: Reading, memory: AnswerMemory
) -> Response:
    """The newest map of the space: the places of its models, as columns."""
    found = maps.get(session, space)
    facts = MapInfo.of(space, found, maps.changed_since(session, space, found))
    session.release()  # nothing is held while it waits for memory
    memory.take(found.models * _BYTES_OF_A_MODEL)
    places = gzip.decompress(maps.packed(session, found))
    session.rollback()
    whole = facts.__pydantic_serializer__.to_json(facts)[:-1] + b"," + places[1:]
    return binary_answer(whole, "application/json", {})
