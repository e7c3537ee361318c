"""``PathPrefixMiddleware``: the service below a path of a proxy, such as ``/modelkin``.

All other code of the service knows only paths from its root. Here the prefix is cut off a request's
path, if the proxy has left it there, and put before the paths of an answer that a browser or a
client follows: ``Location``, and the addresses in attributes of the explorer's pages. Templates
escape quotes, so no text of a tenant looks like an attribute.
"""

from __future__ import annotations

import re
from typing import Final

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["PathPrefixMiddleware"]

_ADDRESS: Final = re.compile(rb'(\s(?:href|src|action|formaction|data-[a-z-]+)=")/(?!/)')


class PathPrefixMiddleware:
    """Passes requests on to ``app`` as if it was at the root.

    Args:
        prefix: begins with a slash and ends with none.
    """

    def __init__(self, app: ASGIApp, prefix: str) -> None:
        self._app = app
        self._prefix = prefix

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        await self._app(self._inner(scope), receive, _Answer(send, self._prefix).send)

    def _inner(self, scope: Scope) -> Scope:
        inner = {**scope, "root_path": "", "app_root_path": self._prefix}
        if scope["path"] == self._prefix or scope["path"].startswith(self._prefix + "/"):
            inner["path"] = scope["path"][len(self._prefix) :] or "/"
        raw, prefix = scope.get("raw_path"), self._prefix.encode()
        if raw is not None and (raw == prefix or raw.startswith(prefix + b"/")):
            inner["raw_path"] = raw[len(prefix) :] or b"/"
        return inner


class _Answer:
    """One answer; a page is held until it is whole, since its length changes."""

    def __init__(self, send: Send, prefix: str) -> None:
        self._send = send
        self._prefix = prefix
        self._start: Message | None = None
        self._page = bytearray()

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            target = headers.get("location", "")
            if target.startswith("/") and not target.startswith(f"{self._prefix}/"):
                headers["location"] = self._prefix + target
            if headers.get("content-type", "").startswith("text/html"):
                self._start = message
                return
        elif self._start is not None:
            self._page += message.get("body", b"")
            if message.get("more_body", False):
                return
            page = _ADDRESS.sub(rb"\1" + self._prefix.encode() + b"/", bytes(self._page))
            started, self._start = self._start, None
            if page:  # a HEAD has a length, and no page
                MutableHeaders(scope=started)["content-length"] = str(len(page))
            await self._send(started)
            message = {**message, "body": page}
        await self._send(message)
