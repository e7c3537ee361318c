"""``TenantMiddleware``: a request sees no tenant's rows before its tenant is known."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from app.infra.db.visibility import no_tenant

__all__ = ["TenantMiddleware"]


class TenantMiddleware:
    """A middleware in pure ASGI, so that ``app`` runs in the context that it sets."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with no_tenant():
            await self._app(scope, receive, send)
