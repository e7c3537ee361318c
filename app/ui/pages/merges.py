"""``/spaces/{space}/merges`` and one of them: averages of models that the service cannot read."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from app.infra.http.dependencies import Cursor, Reading
from app.infra.http.services import Service
from app.merges.dependencies import MergeName
from app.merges.service import MergeService
from app.spaces.dependencies import KnownSpace
from app.ui.rendering import PageRoute, render

__all__ = ["router"]

router = APIRouter(
    include_in_schema=False, default_response_class=HTMLResponse, route_class=PageRoute
)

_PAGE_SIZE: Final = 50


@router.get("/spaces/{space}/merges")
def merges(
    request: Request,
    service: Service[MergeService],
    space: KnownSpace,
    session: Reading,
    cursor: Cursor = None,
) -> HTMLResponse:
    """The merges of a space, newest first."""
    page = service.list(session, space, limit=_PAGE_SIZE, cursor=cursor)
    return render(request, "merges.html", space=space, page=page, cursor=cursor)


@router.get("/spaces/{space}/merges/{merge}")
def merge(
    request: Request,
    service: Service[MergeService],
    name: MergeName,
    space: KnownSpace,
    session: Reading,
) -> HTMLResponse:
    """One merge: its state, whom it waits for, and its parties."""
    shown, parties = service.get(session, space, name)
    return render(
        request,
        "merge.html",
        space=space,
        merge=shown,
        parties=list(parties.values()),
        awaited=frozenset(service.awaited(session, shown, parties)),
    )
