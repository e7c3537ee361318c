"""``BrowserMiddleware``: refuse attacks of foreign web pages through a visitor's browser.

A browser sends requests for any page, adds the credentials that it knows, and trusts the owner of a
name about its address. So a request is refused

- whose ``Host`` is no name and port, since pages and answers make addresses of it;
- where no key is asked for, and the ``Host`` is a name that is not this machine's: a page may have
  rebound its own name to this address, and would read and change everything;
- if it is neither a GET nor a HEAD, and a page of another origin sent it: ``Sec-Fetch-Site`` says
  so, or else ``Origin``. Programs send neither.

Pure ASGI. The headers of answers to browsers are in ``security_headers``.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final, TypeAlias

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.infra.errors import CrossSiteRequest, MisdirectedRequest
from app.infra.http.middleware.security_headers import HEADERS
from app.infra.http.problems import answer
from modelkin.errors import ModelkinError

__all__ = ["BrowserMiddleware"]

_SAFE = frozenset({"GET", "HEAD"})
_OWN = frozenset({"same-origin", "none"})
"""Values of ``Sec-Fetch-Site``: a page of this service, and the visitor's own hand."""


_HOST: Final = re.compile(
    rb"(?:(?P<name>(?=.{1,254}(?::|\Z))[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*\.?)"
    rb"|\[(?P<ipv6>[0-9A-Fa-f:.]{2,45})\])(?::(?P<port>[0-9]{0,5}))?"
)
"""A name or an address, and a port. Names of containers have underscores."""
_LAST_PORT: Final = 65535

_Header: TypeAlias = tuple[bytes, bytes]
_HEADERS: Final = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]


class BrowserMiddleware:
    """Passes a request on to ``app`` unless a page elsewhere may have sent it.

    Args:
        host: the name or address that the service was set to listen on, if requests need no key:
            with ``localhost`` and loopback addresses, all that it answers to. None if they do.
    """

    def __init__(self, app: ASGIApp, *, host: str | None) -> None:
        self._app = app
        self._host = host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        state = scope.setdefault("state", {})
        app = self._app
        try:
            self._check(scope)
        except ModelkinError as error:
            app = answer(Request(scope), error)

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = _with_guards(message["headers"], state)
            await send(message)

        await app(scope, receive, send_guarded)

    def _check(self, scope: Scope) -> None:
        host = next((value for name, value in scope["headers"] if name == b"host"), None)
        if self._host is not None and not _is_own(host or b"", self._host):
            raise MisdirectedRequest(
                "the Host of this request is not one that the service answers to: without keys it "
                f"answers to localhost, loopback addresses and {self._host}"
            )
        if host is not None and not _name(host):  # HTTP/1.0 may leave it out
            raise MisdirectedRequest(
                "the Host of this request is not a name or an address, with or without a port"
            )
        if scope["method"] not in _SAFE and _comes_from_elsewhere(Headers(scope=scope)):
            raise CrossSiteRequest(
                "a page of another origin sent this request, which could change something: only "
                "this service's own pages, and programs, may"
            )


def _with_guards(said: Sequence[_Header], state: Mapping[str, object]) -> list[_Header]:
    """The headers of an answer, with the headers of every answer that it lacks."""
    names = {name for name, _ in said}
    headers = [*said, *(each for each in _HEADERS if each[0] not in names)]
    if "identity" in state:  # a key opened it
        MutableHeaders(raw=headers)["Cache-Control"] = "no-store"
    return headers


@lru_cache(maxsize=64)
def _is_own(host: bytes, listening: str) -> bool:
    name = _name(host)
    if name in {"localhost", listening.lower()}:
        return True
    try:
        address = ipaddress.ip_address(name)
        return address.is_loopback or address == ipaddress.ip_address(listening)
    except ValueError:
        return False


@lru_cache(maxsize=64)
def _name(host: bytes) -> str:
    """The name or address of a ``Host``, without its port; empty where it is no name and port."""
    found = _HOST.fullmatch(host)
    if found is None or int(found["port"] or 0) > _LAST_PORT:
        return ""
    if found["ipv6"] is None:
        return found["name"].decode().lower()
    try:
        return str(ipaddress.IPv6Address(found["ipv6"].decode()))
    except ValueError:
        return ""


def _comes_from_elsewhere(headers: Headers) -> bool:
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site not in _OWN
    origin = headers.get("origin")
    if origin is None:
        return False
    scheme, _, host = origin.partition("://")
    return not scheme or not host or host != headers.get("host")
