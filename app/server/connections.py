"""Limits of the number of connections, and of the time that each has for the head of a request.

A connection costs a file descriptor and some memory for as long as its client keeps it. The
protocols use these limits, and read what comes on a connection.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from app.infra.errors import Unavailable
from app.infra.fault_log import FaultLog
from app.infra.http.problems import PROBLEM

__all__ = ["ConnectionLimits", "HeadDeadline", "turn_away"]

_LINGER_S: Final = 1.0
"""Time for a client that is turned away to read why, before its connection is cut."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits of the connections of one process.

    Attributes:
        max_connections: the most connections; further ones are turned away.
        head_timeout_s: seconds for the head of a request, from its first byte on; for the first
            request, from the connection on. The rest of a body has as many, once it is answered.
    """

    max_connections: int = 2000
    head_timeout_s: float = 10.0
    faults: FaultLog = field(default_factory=FaultLog)


class HeadDeadline:
    """The time until which the head of a request has to be whole.

    Args:
        seconds: the time from :meth:`expect` to :meth:`meet`.
        late: called when that time is over.
    """

    def __init__(self, seconds: float, late: Callable[[], None]) -> None:
        self._seconds = seconds
        self._late = late
        self._timer: asyncio.TimerHandle | None = None

    def expect(self) -> None:
        """Start the timer unless it runs; trickled bytes must not extend it."""
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._seconds, self._over)

    def meet(self) -> None:
        """A head is whole, or its connection is gone."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _over(self) -> None:
        self._timer = None
        self._late()


def turn_away(transport: asyncio.Transport, limits: ConnectionLimits) -> None:
    """Answer 503 on a new connection and end it, whatever its client sends.

    To close it at once could cut the answer off: what arrives at a closed socket resets it.
    """
    error = Unavailable(
        f"this process has {limits.max_connections} connections and takes no more now "
        f"(MODELKIN_MAX_CONNECTIONS): try again"
    )
    limits.faults.note(error)
    transport.set_protocol(_Discarding(transport))
    transport.write(_refusal(error))
    if transport.can_write_eof():
        transport.write_eof()
    asyncio.get_running_loop().call_later(_LINGER_S, transport.abort)


class _Discarding(asyncio.Protocol):
    """Reads and drops all bytes that come."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport

    def eof_received(self) -> bool | None:
        self._transport.close()
        return None


def _refusal(error: Unavailable) -> bytes:
    document: dict[str, Any] = {
        "type": f"urn:modelkin:problem:{error.code}",
        "title": "Service Unavailable",
        "status": 503,
        "code": error.code,
        "detail": str(error),
        "request_id": None,
    }
    body = json.dumps(document).encode()
    head = (
        f"HTTP/1.1 503 Service Unavailable\r\nContent-Type: {PROBLEM}\r\n"
        f"Content-Length: {len(body)}\r\nRetry-After: 1\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
