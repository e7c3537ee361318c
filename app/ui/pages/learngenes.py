"""``/spaces/{space}/learngenes``: what newcomers of each cluster start from, version by version."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from app.infra.http.dependencies import Cursor, Reading
from app.infra.http.services import Service
from app.learngenes.dependencies import ClusterFilter
from app.learngenes.records import LearngeneRecord, shown_cluster
from app.learngenes.service import LearngeneService
from app.spaces.dependencies import KnownSpace
from app.ui import programs
from app.ui.rendering import PageRoute, render
from modelkin.core.learngenes.references import reference_from_json

__all__ = ["router"]

router = APIRouter(
    include_in_schema=False, default_response_class=HTMLResponse, route_class=PageRoute
)

_PAGE_SIZE: Final = 50


@router.get("/spaces/{space}/learngenes")
def learngenes(
    request: Request,
    service: Service[LearngeneService],
    space: KnownSpace,
    session: Reading,
    cluster: ClusterFilter,
    cursor: Cursor = None,
) -> HTMLResponse:
    """The learngenes of a space, or of one of its clusters, newest first."""
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
    """Where the owner of a learngene has its file; "" where that is not said."""
    if learngene.reference is None:
        return ""
    return reference_from_json(dict(learngene.reference)).address
