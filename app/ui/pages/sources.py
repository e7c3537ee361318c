"""``/sources`` and ``/sources/{source}``: the followed hubs, and the events from them."""

from __future__ import annotations

from typing import Final

from fastapi import Request
from fastapi.responses import HTMLResponse

from app.hubs.kinds import DEFAULT_HUB_KIND, HUB_KINDS
from app.hubs.records import SourceRecord
from app.hubs.service import DEFAULT_BACKFILL_PER_HOUR, DEFAULT_POLL_S, SourceService
from app.infra.http.dependencies import Cursor
from app.infra.http.services import Service
from app.models.spaces.service import SpaceService
from app.tenancy.auth.dependencies import ReadingContext
from app.ui.operations import what_to_do
from app.ui.rendering import PageRoutes, render

__all__ = ["routes"]

routes = PageRoutes()

_PAGE_SIZE: Final = 30
_MAX_SPACES: Final = 200
"""Spaces that a form suggests."""


@routes.get("/sources")
def sources(
    context: ReadingContext,
    service: Service[SourceService],
    spaces: Service[SpaceService],
    request: Request,
    cursor: Cursor = None,
    space: str = "",
) -> HTMLResponse:
    """Every source, newest first, and the form for a new one."""
    with context.reading() as session:
        page = service.list(session, context.tenant, limit=_PAGE_SIZE, cursor=cursor)
        known = spaces.list(session, context.tenant, limit=_MAX_SPACES, cursor=None)
    return render(
        request,
        "sources.html",
        page=page,
        cursor=cursor,
        spaces=[each.name for each in known.items],
        suggested=space[:200],
        poll_seconds=DEFAULT_POLL_S,
        per_hour=DEFAULT_BACKFILL_PER_HOUR,
        state=_state,
        kinds=HUB_KINDS,
        default_kind=DEFAULT_HUB_KIND,
    )


@routes.get("/sources/{source}")
def source(
    context: ReadingContext,
    service: Service[SourceService],
    spaces: Service[SpaceService],
    request: Request,
    source: str,
    cursor: Cursor = None,
) -> HTMLResponse:
    """One source: its state, its events, and the actions on it."""
    with context.reading() as session:
        shown = service.get(session, context.tenant, source)
        known = spaces.list(session, context.tenant, limit=_MAX_SPACES, cursor=None)
        return render(
            request,
            "source.html",
            source=shown,
            hook=f"{str(request.base_url).rstrip('/')}/v1/hooks/{shown.id}",
            events=service.hub_events(session, shown, limit=_PAGE_SIZE, cursor=cursor),
            cursor=cursor,
            advice=what_to_do(shown.last_error),
            spaces=[each.name for each in known.items],
            kinds=HUB_KINDS,
            fingerprints=service.fingerprint_counts(session, [shown])[shown.id],
        )


def _state(source: SourceRecord) -> tuple[str, str]:
    """The state of a source in words, and its colour. An error is past once a poll ended."""
    if source.has_failed:
        return "error", "bad"
    if source.last_refusal:
        return "refused an event", "warn"
    if source.last_poll_at or source.last_event_at:
        return "followed", "good"
    return "new", ""
