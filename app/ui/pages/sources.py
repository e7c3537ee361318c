"""``/sources`` and ``/sources/{source}``: the hubs that are followed, and what came from them."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from app.auth.dependencies import ReadingTenant
from app.hubs.records import SourceRecord
from app.hubs.service import DEFAULT_POLL_S, SourceService
from app.infra.http.dependencies import Cursor, Reading
from app.infra.http.services import Service
from app.spaces.service import SpaceService
from app.ui.operations import what_to_do
from app.ui.rendering import PageRoute, render

__all__ = ["router"]

router = APIRouter(
    include_in_schema=False, default_response_class=HTMLResponse, route_class=PageRoute
)

_PAGE_SIZE: Final = 30
_MAX_SPACES: Final = 200
"""Spaces that a form suggests."""


@router.get("/sources")
def sources(
    request: Request,
    service: Service[SourceService],
    spaces: Service[SpaceService],
    tenant: ReadingTenant,
    session: Reading,
    cursor: Cursor = None,
    space: str = "",
) -> HTMLResponse:
    """Every source, newest first, and the form of a new one."""
    page = service.list(session, tenant, limit=_PAGE_SIZE, cursor=cursor)
    known = spaces.list(session, tenant, limit=_MAX_SPACES, cursor=None)
    return render(
        request,
        "sources.html",
        page=page,
        cursor=cursor,
        spaces=[each.name for each in known.items],
        suggested=space[:200],
        poll_seconds=DEFAULT_POLL_S,
        state=_state,
    )


@router.get("/sources/{source}")
def source(
    request: Request,
    service: Service[SourceService],
    spaces: Service[SpaceService],
    tenant: ReadingTenant,
    session: Reading,
    source: str,
    cursor: Cursor = None,
) -> HTMLResponse:
    """One source: how it does, its events, and what may be done with it."""
    shown = service.get(session, tenant, source)
    known = spaces.list(session, tenant, limit=_MAX_SPACES, cursor=None)
    return render(
        request,
        "source.html",
        source=shown,
        hook=f"{str(request.base_url).rstrip('/')}/v1/hooks/{shown.id}",
        events=service.hub_events(session, shown, limit=_PAGE_SIZE, cursor=cursor),
        cursor=cursor,
        advice=what_to_do(shown.last_error),
        spaces=[each.name for each in known.items],
    )


def _state(source: SourceRecord) -> tuple[str, str]:
    """How a source does, in words, and the colour of that. An error is past once a poll ended."""
    last = source.last_poll_at or source.created_at
    if source.last_error and datetime.fromisoformat(source.last_error["at"]) > last:
        return "error", "bad"
    if source.last_refusal:
        return "refused an event", "warn"
    if source.last_poll_at or source.last_event_at:
        return "followed", "good"
    return "new", ""
