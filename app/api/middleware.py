"""Request ids: every request has one, every answer says it, every line of the access log begins
with it.
"""

from __future__ import annotations

import logging
import re
import secrets
import time

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["RequestIds"]

_SAFE = re.compile(r"[A-Za-z0-9._-]{1,64}")

log = logging.getLogger("modelkin.access")


class RequestIds:
    """Takes a caller's ``X-Request-Id`` where it is harmless, makes one otherwise."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get("x-request-id", "")
        request_id = given if _SAFE.fullmatch(given) else secrets.token_hex(8)
        scope["request_id"] = request_id
        began = time.perf_counter()
        status = 0

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)["X-Request-Id"] = request_id
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        finally:
            milliseconds = (time.perf_counter() - began) * 1000
            log.info(
                "%s %s %s %d %.1f ms",
                request_id,
                scope["method"],
                scope["path"].encode("unicode_escape").decode(),
                status,
                milliseconds,
            )
