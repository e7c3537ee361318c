"""``/spaces/{space}/merges`` and below it: averages of models that the service cannot read."""

from __future__ import annotations

from typing import Final

from fastapi import Request
from fastapi.responses import HTMLResponse

from app.infra.http.dependencies import Cursor
from app.infra.http.services import Service
from app.merges.dependencies import MergeName
from app.merges.service import MergeService
from app.models.spaces.dependencies import SpaceName
from app.models.spaces.service import SpaceService
from app.tenancy.auth.dependencies import ReadingContext
from app.ui.rendering import PageRoutes, render

__all__ = ["routes"]

routes = PageRoutes()

_PAGE_SIZE: Final = 50


@routes.get("/spaces/{space}/merges")
def merges(
    context: ReadingContext,
    spaces: Service[SpaceService],
    service: Service[MergeService],
    space_name: SpaceName,
    request: Request,
    cursor: Cursor = None,
) -> HTMLResponse:
    """The merges of a space, newest first."""
    with context.reading() as session:
        space = spaces.get(session, context.tenant, space_name)
        page = service.list(session, space, limit=_PAGE_SIZE, cursor=cursor)
    return render(request, "merges.html", space=space, page=page, cursor=cursor)


@routes.get("/spaces/{space}/merges/{merge}")
def merge(
    context: ReadingContext,
    spaces: Service[SpaceService],
    service: Service[MergeService],
    space_name: SpaceName,
    request: Request,
    name: MergeName,
) -> HTMLResponse:
    """One merge: its state, the parties that it waits for, and all its parties."""
    with context.reading() as session:
        space = spaces.get(session, context.tenant, space_name)
        shown, parties = service.get(session, space, name)
        return render(
            request,
            "merge.html",
            space=space,
            merge=shown,
            parties=list(parties.values()),
            awaited=frozenset(service.awaited_parties(session, shown, parties)),
        )
