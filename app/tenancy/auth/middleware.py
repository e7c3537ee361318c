"""``RateLimitMiddleware``: refuse requests beyond the rate limits before anything is read or done.

Pure ASGI, around everything but the log. The response fields ``RateLimit`` and ``RateLimit-Policy``
report what is left (draft-ietf-httpapi-ratelimit-headers-11). Probes and the pages about the
service itself are not counted; neither are ``/metrics``, but wrong keys are counted there, too.
Webhooks of hubs carry no key: they are counted by the address that they come from.
"""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import Request
from fastapi.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.infra.errors import Unauthorized
from app.infra.http.problems import answer
from app.infra.http.routing import HOOKS
from app.tenancy.auth.counters import WINDOW_S, Standing
from app.tenancy.auth.dependencies import identify
from app.tenancy.auth.rate_limits import RateLimitExceeded, RateLimits
from modelkin.errors import ModelkinError

__all__ = ["RateLimitMiddleware"]

_OPEN = frozenset({"/livez", "/readyz", "/openapi.json", "/docs", "/sign-in", "/sign-out"})
"""Paths that need no key. The sign-in page counts wrong keys itself."""
_OPEN_BELOW = ("/docs/", "/assets/")
"""Prefixes of the paths of the open pages' files."""
_UNCOUNTED = "/metrics"
_READ = frozenset({"GET", "HEAD", "OPTIONS"})
_QUESTIONS = ("/neighbors", "/donors", "/similarity", "/assign")
"""Path endings of the queries: there a POST stores nothing."""


class RateLimitMiddleware:
    """Passes requests on to ``app`` as far as the limits allow.

    Args:
        rates: the limits.
        keys_required: whether keys identify tenants; if not, addresses are counted.
    """

    def __init__(self, app: ASGIApp, rates: RateLimits, *, keys_required: bool) -> None:
        self._app = app
        self._rates = rates
        self._keys_required = keys_required

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or _is_open(scope["path"]):
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        app = self._app
        standings: Sequence[Standing] = ()
        try:
            standings = await run_in_threadpool(self._admit, request)
        except RateLimitExceeded as error:
            standings, app = error.standings, answer(request, error)
        except ModelkinError as error:
            app = answer(request, error)

        async def send_with_limits(message: Message) -> None:
            if message["type"] == "http.response.start" and standings:
                headers = MutableHeaders(scope=message)
                headers["RateLimit-Policy"] = _policies(standings)
                headers["RateLimit"] = _left(standings)
            await send(message)

        await app(scope, receive, send_with_limits)

    def _admit(self, request: Request) -> Sequence[Standing]:
        """Count the request; return what its caller may still send, by quota."""
        address = request.client.host if request.client else ""
        counted = request.scope["path"] != _UNCOUNTED
        if not self._keys_required or request.scope["path"].startswith(HOOKS):
            return self._rates.count_address(address, writes=_writes(request)) if counted else ()
        credentials = request.headers.get("authorization", "")
        self._rates.check_tries(address, credentials)
        try:
            tenant = identify(request).tenant
        except Unauthorized:
            self._rates.note_bad(address, credentials)
            return ()  # the route says so, if there is one
        self._rates.note_good(credentials)
        return self._rates.count_tenant(tenant, writes=_writes(request)) if counted else ()


def _is_open(path: str) -> bool:
    return path in _OPEN or path.startswith(_OPEN_BELOW)


def _writes(request: Request) -> bool:
    if request.method in _READ:
        return False
    return request.method != "POST" or not request.scope["path"].endswith(_QUESTIONS)


def _policies(standings: Sequence[Standing]) -> str:
    quotas = (standing.quota for standing in standings)
    return ", ".join(f'"{quota.name}";q={quota.limit};w={WINDOW_S}' for quota in quotas)


def _left(standings: Sequence[Standing]) -> str:
    return ", ".join(f'"{s.quota.name}";r={s.remaining};t={s.reset}' for s in standings)
