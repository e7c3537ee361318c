"""Cookies of sessions: one holds the token of a session, for this service alone.

Scripts cannot read it (``HttpOnly``), no request of another site carries it (``SameSite=Strict``),
and no address or storage of the browser ever holds it. It ends with the browser, and its session
before that where its time is over, its visitor signs out, or its key expires or is revoked.
Requests that come with it are those of the key, at the same limits.
"""

from __future__ import annotations

from typing import Final

from fastapi import Request, Response
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from app.tenancy.auth.dependencies import VISITOR

__all__ = ["COOKIE", "SignInMiddleware", "begin", "end", "own_path", "token"]

COOKIE: Final = "modelkin_session"
_OF_THE_HOST: Final = f"__Host-{COOKIE}"
"""Its name where TLS comes to the service: no other host, port or page without TLS can set that."""
_LEFT: Final = "modelkin_key"
"""The cookie of versions before sessions, which held the key itself."""
_SAFE: Final = frozenset({"GET", "HEAD"})
_OWN: Final = "same-origin"


class SignInMiddleware:
    """Shows the token of a session to ``app`` as if it stood in the ``Authorization`` header.

    Pure ASGI, inside of ``BrowserMiddleware``, which refuses changes that other origins ask for. A
    change with a session must moreover say that it comes from a page of this service.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            found = token(scope)
            if found and "authorization" not in headers and _may_use(headers, scope["method"]):
                shown = (b"authorization", (VISITOR + found).encode("latin-1", "replace"))
                scope = {**scope, "headers": [*scope["headers"], shown]}
        await self._app(scope, receive, send)


def begin(request: Request, response: Response, token: str) -> None:
    """Give the browser the token of a session, and take from it what is left of older versions."""
    response.set_cookie(
        _name(request.scope),
        token,
        httponly=True,
        samesite="strict",
        secure=request.scope["scheme"] == "https",
        path=_root(request.scope),
    )
    response.delete_cookie(_LEFT, path=_root(request.scope))


def end(request: Request, response: Response) -> None:
    """Take the cookie of a session from the browser, and what is left of older versions."""
    response.delete_cookie(
        _name(request.scope),
        httponly=True,
        samesite="strict",
        secure=request.scope["scheme"] == "https",
        path=_root(request.scope),
    )
    response.delete_cookie(_LEFT, path=_root(request.scope))


def token(scope: Scope) -> str | None:
    """The token in the cookie of a request, or None; a neighbour's cookies may be malformed."""
    return Request(scope).cookies.get(_name(scope))


def own_path(path: str) -> str:
    """Return the path if it is a path of this service, else ``/``: a link may not lead away."""
    is_own = path.startswith("/") and not path.startswith("//") and "\\" not in path
    return path if is_own and path.isprintable() else "/"


def _root(scope: Scope) -> str:
    """The path below which all of the service is: its neighbours on a host never get the cookie."""
    prefix: str = scope.get("app_root_path", "")
    return prefix or "/"


def _name(scope: Scope) -> str:
    return _OF_THE_HOST if scope["scheme"] == "https" and _root(scope) == "/" else COOKIE


def _may_use(headers: Headers, method: str) -> bool:
    """Whether a request may be that of a session: one that changes something says its origin."""
    return method in _SAFE or _is_own(headers)


def _is_own(headers: Headers) -> bool:
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site == _OWN
    origin = headers.get("origin", "")
    return bool(origin) and origin.partition("://")[2] == headers.get("host")
