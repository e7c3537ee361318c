"""Request ids, the access log and request metrics, as a middleware.

It is pure ASGI, so it buffers no body.
"""

from __future__ import annotations

import logging
import random
import re
import time
from collections.abc import Iterable

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.infra import fail_points
from app.operations.observability.logging import request_id
from app.operations.observability.metrics import Metrics
from modelkin._version import __version__

__all__ = ["RequestLogMiddleware"]

_SAFE = re.compile(r"[A-Za-z0-9._-]{1,64}")

_ID = b"x-request-id"
_VERSION = b"modelkin-version", __version__.encode()

log = logging.getLogger("modelkin.access")


class RequestLogMiddleware:
    """Use the client's ``X-Request-Id`` if it is safe to log, else a new one."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics
        # To ask the kernel for each id would hand the interpreter to other threads.
        self._random = random.Random()  # noqa: S311  # an id is not a secret

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope["request_id"] = _given_id(scope["headers"]) or f"{self._random.getrandbits(64):016x}"
        token = request_id.set(scope["request_id"])
        began = time.perf_counter()
        status = 0  # of a client that left before the answer

        async def send_signed(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                own = (_ID, scope["request_id"].encode()), _VERSION
                message["headers"] = [*message["headers"], *own]
                if getattr(scope["app"].state, "draining", False):
                    MutableHeaders(scope=message)["Connection"] = "close"
                fail_points.reach("before_answer")
            await send(message)

        self._metrics.in_flight.inc()
        try:
            await self._app(scope, receive, send_signed)
            fail_points.reach("after_answer")
        except Exception:
            status = status or 500  # a bug, answered outside of this middleware
            raise
        finally:
            self._metrics.in_flight.dec()
            seconds = time.perf_counter() - began
            route = getattr(scope.get("route"), "path", "unmatched")
            self._metrics.answered(scope["method"], route, status, seconds)
            if "problem_code" in scope:
                self._metrics.refusals.labels(scope["problem_code"]).inc()
            _log(scope, status, seconds)
            request_id.reset(token)


def _given_id(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """The client's request id, if it sent one that is safe to log."""
    given = next((value.decode("latin-1") for name, value in headers if name == _ID), "")
    return given if _SAFE.fullmatch(given) else None


def _log(scope: Scope, status: int, seconds: float) -> None:
    path = scope["path"]
    if not (path.isascii() and path.isprintable()) or "\\" in path:
        path = path.encode("unicode_escape").decode()
    milliseconds = round(seconds * 1000, 1)
    caller = _caller(scope)
    log.info(
        "%s %s %d %.1f ms%s",
        scope["method"],
        path,
        status,
        milliseconds,
        "".join(f" {name}={value}" for name, value in caller.items()),
        extra={
            "method": scope["method"],
            "path": path,
            "status": status,
            "milliseconds": milliseconds,
            **caller,
        },
    )


def _caller(scope: Scope) -> dict[str, str]:
    """The caller: the address, and the tenant and the first characters of a valid key."""
    client = scope.get("client")
    found = {"address": client[0]} if client else {}
    identity = scope.get("state", {}).get("identity")
    if identity is not None:
        found["tenant"] = identity.tenant.name
        if identity.prefix is not None:
            found["key"] = identity.prefix
    return found
