"""``/spaces/{space}/learngenes``: the starting points of each cluster's newcomers, by version."""

from __future__ import annotations

from typing import Final

from fastapi import Request
from fastapi.responses import HTMLResponse

from app.infra.http.dependencies import Cursor
from app.infra.http.services import Service
from app.models.learngenes.dependencies import ClusterFilter
from app.models.learngenes.records import LearngeneRecord, shown_cluster
from app.models.learngenes.service import LearngeneService
from app.models.spaces.dependencies import SpaceName
from app.models.spaces.service import SpaceService
from app.tenancy.auth.dependencies import ReadingContext
from app.ui import programs
from app.ui.rendering import PageRoutes, render
from modelkin.core.learngenes.references import reference_from_json

__all__ = ["routes"]

routes = PageRoutes()

_PAGE_SIZE: Final = 50


@routes.get("/spaces/{space}/learngenes")
def learngenes(
    context: ReadingContext,
    spaces: Service[SpaceService],
    service: Service[LearngeneService],
    space_name: SpaceName,
    request: Request,
    cluster: ClusterFilter,
    cursor: Cursor = None,
) -> HTMLResponse:
    """The learngenes of a space, or of a cluster, newest first."""
    with context.reading() as session:
        space = spaces.get(session, context.tenant, space_name)
        page = service.list(session, space, cluster, limit=_PAGE_SIZE, cursor=cursor)
        return render(
            request,
            "learngenes.html",
            space=space,
            page=page,
            cluster=None if cluster is None else shown_cluster(cluster),
            cursor=cursor,
            stale=service.stale_among(session, space, page.items),
            shown_cluster=shown_cluster,
            address_of=_address,
            programs=programs.of_learngenes(request, space),
        )


def _address(learngene: LearngeneRecord) -> str:
    """The address of a learngene's file at its owner's; "" if none is stated."""
    if learngene.reference is None:
        return ""
    return reference_from_json(dict(learngene.reference)).address
