"""``/spaces/{space}/map``: the models of a space in the plane, in colours of their groups.

The page is small and there at once. Its script asks for the places, which are sent as they are
stored, and for the colours.
"""

from __future__ import annotations

import gzip
from typing import Annotated, Any, Final

from fastapi import Depends, Header, Query, Request, Response
from fastapi.responses import HTMLResponse
from pydantic_core import to_json

from app.infra.http.answers import AnswerMemory, binary_answer
from app.infra.http.requests.preconditions import entity_tag, is_known
from app.infra.http.routes import Routes
from app.infra.http.services import Service
from app.jobs.service import JobService
from app.kinship.maps.coloring import MapColoring
from app.kinship.maps.service import JOB_KIND, MapService
from app.models.spaces.dependencies import SpaceName
from app.models.spaces.service import SpaceService
from app.tenancy.auth.dependencies import ReadingContext
from app.ui.rendering import PageRoutes, render

__all__ = ["data", "routes"]

routes = PageRoutes()
data = Routes(include_in_schema=False)
"""The data that the page's script requests, as JSON."""

_JSON: Final = "application/json"
_BYTES_OF_A_MODEL: Final = 700
_MAX_COLOR: Final = 300

Text = Annotated[str, Query()]


def _view(
    x: Text = "",
    y: Text = "",
    zoom: Text = "",
    model: Text = "",
    color: Text = "",
    hide: Text = "",
) -> dict[str, str]:
    """What the script of the page keeps in its address, and reads by itself."""
    return {"x": x, "y": y, "zoom": zoom, "model": model, "color": color, "hide": hide}


@routes.get("/spaces/{space}/map", dependencies=[Depends(_view)])
def map_page(
    context: ReadingContext,
    spaces: Service[SpaceService],
    maps: Service[MapService],
    jobs: Service[JobService],
    space_name: SpaceName,
    request: Request,
) -> HTMLResponse:
    """The map, or how to have one drawn."""
    with context.reading() as session:
        space = spaces.get(session, context.tenant, space_name)
        found = maps.newest(session, space)
        changed = 0 if found is None else maps.changed_since(session, space, found)
        last = jobs.list(session, context.tenant, limit=1, kind=JOB_KIND, space=space.name).items
    drawing = [job.id for job in last if job.state in {"queued", "running"}]
    return render(
        request,
        "map.html",
        space=space,
        map=found,
        changed=changed,
        drawing=drawing[0] if drawing else None,
    )


@data.get("/spaces/{space}/map/places")
def places(
    context: ReadingContext,
    spaces: Service[SpaceService],
    maps: Service[MapService],
    space_name: SpaceName,
    memory: AnswerMemory,
    request: Request,
    accept_encoding: Annotated[str, Header()] = "",
) -> Response:
    """The models and places of the newest map, compressed if the browser takes that."""
    with context.reading() as session:
        space = spaces.get(session, context.tenant, space_name)
        found = maps.get(session, space)
        headers = {
            "ETag": entity_tag(found.id),
            "Cache-Control": "no-cache",
            "Vary": "Accept-Encoding",
        }
        if is_known(request, found.id):
            return Response(status_code=304, headers=headers)
        session.release()  # nothing is held while it waits for memory
        memory.take(found.models * _BYTES_OF_A_MODEL)
        content = maps.compressed_content(session, found)
    if "gzip" in accept_encoding:
        headers["Content-Encoding"] = "gzip"
    else:
        content = gzip.decompress(content)
    return binary_answer(content, _JSON, headers)


@data.get("/spaces/{space}/map/choices")
def choices(
    context: ReadingContext,
    spaces: Service[SpaceService],
    coloring: Service[MapColoring],
    space_name: SpaceName,
) -> Response:
    """The choices of the map's colours."""
    with context.reading() as session:
        space = spaces.get(session, context.tenant, space_name)
        return _answer({"choices": coloring.choices(session, space)})


@data.get(
    "/spaces/{space}/map/colors",
    turn="heavy",
)
def colors(
    context: ReadingContext,
    spaces: Service[SpaceService],
    maps: Service[MapService],
    coloring: Service[MapColoring],
    space_name: SpaceName,
    memory: AnswerMemory,
    by: Annotated[str, Query(max_length=_MAX_COLOR)] = "",
) -> Response:
    """The group of each model of the newest map; by default its cluster, else its tag."""
    with context.reading() as session:
        space = spaces.get(session, context.tenant, space_name)
        found = maps.get(session, space)
        chosen = by or coloring.default(session, space)
        session.release()  # nothing is held while it waits for memory
        memory.take(found.models * _BYTES_OF_A_MODEL)
        grouped = coloring.coloring(session, space, chosen, found)
    return _answer({"map": found.id, "by": chosen, "coloring": grouped})


def _answer(value: dict[str, Any]) -> Response:
    return binary_answer(to_json(value), _JSON, {"Cache-Control": "no-cache"})
