"""``TenantMiddleware``: a request sees no tenant's rows before it is known whose it is."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from app.infra.db.visibility import no_tenant

__all__ = ["TenantMiddleware"]


class TenantMiddleware:
    """Pure ASGI, so that ``app`` runs in the context that this sets."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with no_tenant():
            await self._app(scope, receive, send)
