"""``/keys``: the keys of the visitor's tenant, made and revoked here."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from fastapi import Request
from fastapi.responses import HTMLResponse

from app.infra.http.dependencies import Cursor
from app.infra.http.services import Service
from app.infra.programs import service_command
from app.tenancy.auth.dependencies import KeyedContext
from app.tenancy.auth.service import SCOPES, KeyService
from app.ui.rendering import PageRoutes, render

__all__ = ["routes"]

routes = PageRoutes()

_PAGE_SIZE: Final = 50
_SCOPES: Final = {
    "read": "queries, and every page",
    "write": "changes to models, sources and subscriptions",
    "metrics": "the operator's numbers at /metrics",
    "values": "the learngenes that the service keeps",
    "admin": "making and revoking keys",
}
_LIFETIMES: Final = (
    (7 * 86400, "a week"),
    (30 * 86400, "a month"),
    (90 * 86400, "three months"),
    (365 * 86400, "a year"),
)
"""The lifetimes of a new key: seconds, and in words."""


@routes.get("/keys")
def keys(
    context: KeyedContext,
    service: Service[KeyService],
    request: Request,
    cursor: Cursor = None,
) -> HTMLResponse:
    """Every key, newest first; a visitor without the scope ``admin`` sees only the present key."""
    with context.reading() as session:
        allowed = "admin" in context.identity.scopes
        page = None
        if allowed:
            page = service.page(session, context.tenant, limit=_PAGE_SIZE, cursor=cursor)
    return render(
        request,
        "keys.html",
        status=200 if allowed else 403,
        page=page,
        caller=context.identity,
        own_scopes=[scope for scope in SCOPES if scope in context.identity.scopes],
        scope_texts=_SCOPES,
        lifetimes=_LIFETIMES,
        command=service_command(
            "keys create --tenant",
            context.tenant.name,
            "--scope read --scope write --scope admin",
        ),
        now=datetime.now(UTC),
        cursor=cursor,
    )
