"""/v1/spaces/{space}/maps: the models of a space in the plane, drawn by jobs."""

from __future__ import annotations

import gzip
from typing import Final

from fastapi import Response

from app.infra.errors import MapNotFound, QueueFull, RateLimited
from app.infra.http.answers import Answer, AnswerMemory, binary_answer
from app.infra.http.requests.json_bodies import JsonBody
from app.infra.http.routes import Routes
from app.infra.http.services import Service
from app.jobs.endpoints import job_answer
from app.jobs.schemas import JobOut
from app.kinship.maps.schemas import MapIn, MapInfo, MapOut
from app.kinship.maps.service import MapService
from app.models.spaces.dependencies import SpaceName
from app.models.spaces.service import SpaceService
from app.tenancy.auth.dependencies import (
    AUTHENTICATED,
    REFUSALS,
    ReadingContext,
    WritingContext,
)

__all__ = ["routes"]

routes = Routes(
    prefix="/v1/spaces/{space}/maps",
    tags=["kinship"],
    dependencies=AUTHENTICATED,
    responses=REFUSALS,
)

_BYTES_OF_A_MODEL: Final = 700
"""Memory of a model with a long name, as it is read and as it is written."""


@routes.post(
    "",
    operation_id="create_map",
    summary="Start drawing a map of a space",
    refuses=(QueueFull, RateLimited),
    status_code=202,
)
def create(
    context: WritingContext,
    spaces: Service[SpaceService],
    maps: Service[MapService],
    space_name: SpaceName,
    received: JsonBody[MapIn],
) -> Answer[JobOut]:
    """Draw all models of the space, as they are when the job begins, as a map.

    Each model is joined to its nearest neighbours, and the graph is laid out in the plane, so that
    neighbours lie near each other. The map replaces the one before. A repeated request gets the
    same job, until that has ended or the space has changed.
    """
    body = received.read()
    with context.writing() as session:
        space = spaces.get(session, context.tenant, space_name)
        return job_answer(maps.create(session, context.tenant, space, body.to_request()))


@routes.get(
    "/latest",
    operation_id="get_latest_map",
    summary="Show the newest map of a space",
    refuses=(MapNotFound,),
    response_model=MapOut,
    turn="heavy",
)
def latest(
    context: ReadingContext,
    spaces: Service[SpaceService],
    maps: Service[MapService],
    space_name: SpaceName,
    memory: AnswerMemory,
) -> Response:
    """The newest map of the space: the places of its models, as columns."""
    with context.reading() as session:
        space = spaces.get(session, context.tenant, space_name)
        found = maps.get(session, space)
        facts = MapInfo.of(space, found, maps.changed_since(session, space, found))
        session.release()  # nothing is held while it waits for memory
        memory.take(found.models * _BYTES_OF_A_MODEL)
        places = gzip.decompress(maps.compressed_content(session, found))
    whole = facts.__pydantic_serializer__.to_json(facts)[:-1] + b"," + places[1:]
    return binary_answer(whole, "application/json", {})
