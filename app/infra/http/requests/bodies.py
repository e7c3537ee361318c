"""Request bodies: read to a limit and a deadline, in memory of the budget."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from email.message import Message
from typing import Final

from fastapi import Request

from app.infra.errors import BodyTimeout
from app.infra.http.requests.memory_budget import Reservation
from modelkin import wire
from modelkin.errors import PayloadTooLarge, UnsupportedMediaType

__all__ = [
    "BODY_PROBLEMS",
    "BodyLimits",
    "media_type_of",
    "read_body",
]

BODY_PROBLEMS: Final = (BodyTimeout, PayloadTooLarge, UnsupportedMediaType)
"""The refusals of every operation with a body, before its content is parsed."""

_DEADLINE_STEP_BYTES = 8 << 20
"""Bytes that extend the deadline of a body by another ``timeout``."""


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """Limits on the body of a request.

    Attributes:
        max_bytes: the most bytes of a body.
        max_json_bytes: the most bytes of a JSON body.
        timeout: the seconds for its first bytes, and again for each further 8 MiB.
    """

    max_bytes: int
    max_json_bytes: int
    timeout: float

    def allowed_seconds(self, size: int) -> float:
        """Return the seconds that ``size`` bytes may take, and the next few."""
        return self.timeout * (1 + size // _DEADLINE_STEP_BYTES)


def media_type_of(request: Request) -> str:
    """The media type of the body, lower case and without its parameters; empty if none is named."""
    value = request.headers.get("content-type", "")
    if not value:
        return ""
    message = Message()
    message["content-type"] = value
    return message.get_content_type()


async def read_body(
    request: Request, limits: BodyLimits, media_type: str, hold: Reservation | None = None
) -> bytearray:
    """Read the whole body.

    Args:
        hold: the reservation that grows before the bytes are read.

    Raises:
        Unavailable: other requests hold all memory for bodies.
        PayloadTooLarge: the body is, or declares to be, too long for its media type; the rest is
            not read.
        BodyTimeout: the body arrives too slowly.
    """
    is_json = media_type == wire.JSON
    limit = limits.max_json_bytes if is_json else limits.max_bytes
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > limit:
        raise _too_large(limit, is_json)
    body = bytearray()
    size = 0
    taken = 0
    loop = asyncio.get_running_loop()
    began = loop.time()
    try:
        async with asyncio.timeout_at(began + limits.timeout) as deadline:
            async for chunk in request.stream():
                size += len(chunk)
                if size > limit:
                    raise _too_large(limit, is_json)
                if hold is not None and size > taken:
                    step = min(max(size - taken, _DEADLINE_STEP_BYTES), limit)
                    await hold.take_in_turn(step)
                    taken += step
                body += chunk
                deadline.reschedule(began + limits.allowed_seconds(size))
    except TimeoutError:
        raise BodyTimeout(
            f"the body came too slowly: {size} bytes in {loop.time() - began:.0f} s"
        ) from None
    return body


def _too_large(limit: int, is_json: bool) -> PayloadTooLarge:
    hint = "; send supports in a binary format" if is_json else ""
    kind = "a JSON body" if is_json else "a body"
    return PayloadTooLarge(f"{kind} may have {limit} bytes at most{hint}")
