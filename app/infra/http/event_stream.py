"""``EventStream``: an answer of server-sent events, one for each revision of a followed thing."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from typing import Any, Final, Protocol, TypeVar

from fastapi.sse import format_sse_event
from pydantic import BaseModel
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

__all__ = ["EVENTS", "EventStream", "known_revision"]

EVENTS: Final = "text/event-stream"

_KEEPALIVE_INTERVAL_S: Final = 15.0
"""Seconds without an event after which a comment keeps the stream alive."""
_RECONNECT_MS: Final = 2000
"""Milliseconds before a client reconnects after its stream broke off."""

T = TypeVar("T", covariant=True)


class Follower(Protocol[T]):
    """Has a place for each stream, and follows its subject."""

    def close(self, stream: Any) -> None: ...

    def follow(self, stream: Any, after: int | None) -> AsyncIterator[T | None]: ...


def known_revision(last: str | None) -> int | None:
    """The revision that a client knows, from its ``Last-Event-ID``; None for another text."""
    return int(last) if last is not None and last.isdecimal() and len(last) < 19 else None


class EventStream(StreamingResponse):
    """The events of a stream, which has its place only while they are sent.

    Args:
        open_stream: takes the place; what refuses it is the answer.
        follower: is given the place back, however the answer ends.
        known: the revision that the client knows.
        shown: the JSON of a revision.
    """

    def __init__(
        self,
        open_stream: Callable[[], object],
        follower: Follower[Any],
        known: int | None,
        shown: Callable[[Any], BaseModel],
    ) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__((), media_type=EVENTS, headers=headers)
        self._open = open_stream
        self._follower = follower
        self._known = known
        self._shown = shown

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        stream = self._open()
        self.body_iterator = self._events(stream)
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._follower.close(stream)

    async def _events(self, stream: object) -> AsyncIterator[bytes]:
        yield format_sse_event(retry=_RECONNECT_MS)
        sent = time.monotonic()
        async for now in self._follower.follow(stream, self._known):
            if now is not None:
                shown = self._shown(now).model_dump_json()
                yield format_sse_event(data_str=shown, id=str(now.revision))
            elif time.monotonic() - sent > _KEEPALIVE_INTERVAL_S:
                yield format_sse_event(comment="still here")
            else:
                continue
            sent = time.monotonic()
