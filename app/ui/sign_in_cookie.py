"""Sessions of visitors: a cookie holds the key, for this service alone and until the browser ends.

Scripts cannot read it (``HttpOnly``), no request of another site carries it (``SameSite=Strict``),
and no address or storage of the browser ever holds it. It is as good as the key: it ends when the
key expires or is revoked. Requests that come with it are those of the key, at the same limits.
"""

from __future__ import annotations

from http.cookies import CookieError, SimpleCookie
from typing import Final

from fastapi import Request, Response
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

__all__ = ["COOKIE", "SignInMiddleware", "begin", "end", "own_path"]

COOKIE: Final = "modelkin_key"
_SAFE: Final = frozenset({"GET", "HEAD"})
_OWN: Final = "same-origin"


class SignInMiddleware:
    """Shows the key of a session to ``app`` as if it stood in the ``Authorization`` header.

    Pure ASGI, inside of ``BrowserMiddleware``, which refuses changes that other origins ask for. A
    change with a session must moreover say that it comes from a page of this service.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            key = _key(Headers(scope=scope), scope["method"])
            if key is not None:
                shown = (b"authorization", b"Bearer " + key.encode("latin-1", "replace"))
                scope = {**scope, "headers": [*scope["headers"], shown]}
        await self._app(scope, receive, send)


def begin(request: Request, response: Response, key: str) -> None:
    """Begin a session with a key that was checked."""
    response.set_cookie(
        COOKIE,
        key,
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
        path=_root(request),
    )


def end(request: Request, response: Response) -> None:
    """End the session."""
    response.delete_cookie(COOKIE, httponly=True, samesite="strict", path=_root(request))


def own_path(path: str) -> str:
    """Return the path if it is a path of this service, else ``/``: a link may not lead away."""
    is_own = path.startswith("/") and not path.startswith("//") and "\\" not in path
    return path if is_own and path.isprintable() else "/"


def _root(request: Request) -> str:
    """The path below which all of the service is: its neighbours on a host never get the key."""
    prefix: str = request.scope.get("app_root_path", "")
    return prefix or "/"


def _key(headers: Headers, method: str) -> str | None:
    if "authorization" in headers or "cookie" not in headers:
        return None
    if method not in _SAFE and not _is_own(headers):
        return None
    try:
        cookies = SimpleCookie(headers["cookie"])
    except CookieError:
        return None
    return cookies[COOKIE].value if COOKIE in cookies else None


def _is_own(headers: Headers) -> bool:
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site == _OWN
    origin = headers.get("origin", "")
    return bool(origin) and origin.partition("://")[2] == headers.get("host")
