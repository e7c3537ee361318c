"""Request bodies: read to a limit and a deadline, and JSON taken strictly."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from email.message import Message
from typing import Any, Final

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic_core import from_json
from starlette.exceptions import HTTPException

from app.errors import BodyTimeout
from app.infra.http.memory_budget import Reservation
from app.infra.http.services import services_of
from modelkin import wire
from modelkin.errors import InvalidParameter, ModelkinError, PayloadTooLarge, UnsupportedMediaType
from modelkin.wire.json import parse_json

__all__ = [
    "BODY_PROBLEMS",
    "BodyLimits",
    "JsonRoute",
    "media_type_of",
    "parse_strictly",
    "read_body",
]

BODY_PROBLEMS: Final = (BodyTimeout, PayloadTooLarge, UnsupportedMediaType)
"""What every operation with a body may refuse, before its content is parsed."""

_DEADLINE_STEP_BYTES = 8 << 20
"""Bytes that extend the deadline of a body by another ``timeout``."""


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """Limits on the body of a request.

    Attributes:
        max_bytes: of a body.
        max_json_bytes: of a JSON body.
        timeout: seconds for the first bytes of it, and again for each further 8 MiB.
    """

    max_bytes: int
    max_json_bytes: int
    timeout: float

    def allowed(self, size: int) -> float:
        """Seconds that so many bytes may take, and the next few."""
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
    """The whole body.

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
                deadline.reschedule(began + limits.allowed(size))
    except TimeoutError:
        raise BodyTimeout(
            f"the body came too slowly: {size} bytes in {loop.time() - began:.0f} s"
        ) from None
    return body


def parse_strictly(body: bytes) -> Any:
    """Parse JSON; ValueError says why it is invalid, or why it is refused."""
    document = from_json(body, allow_inf_nan=False)
    # pydantic's parser, the stricter about surrogates and depth, would take the last of two fields
    # of one name and ignore the first without a word.
    parse_json(body, InvalidParameter)
    return document


class JsonRoute(APIRoute):
    """A route whose body is strict JSON: no NaN, no lone surrogates, limited nesting."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def strictly(request: Request) -> Response:
            await self.before_body(request)
            try:
                return await handle(_JsonRequest(request.scope, request.receive))
            except _Refused as refused:
                raise refused.reason from None

        return strictly

    async def before_body(self, request: Request) -> None:
        """Refuse a request before its body is read; this refuses none."""


class _Refused(HTTPException):
    """Carries an error through FastAPI, which lets only HTTP exceptions pass from a body."""

    def __init__(self, reason: Exception) -> None:
        super().__init__(400)
        self.reason = reason


class _JsonRequest(Request):
    async def body(self) -> bytes:
        if not hasattr(self, "_body"):
            try:
                if media_type_of(self) != wire.JSON:
                    raise UnsupportedMediaType("this takes Content-Type: application/json")
                limits = services_of(self)[BodyLimits]
                self._body = bytes(await read_body(self, limits, wire.JSON))
            except ModelkinError as error:
                raise _Refused(error) from error
        return self._body

    async def json(self) -> Any:
        body = await self.body()
        try:
            return parse_strictly(body)
        except ValueError as error:
            entry = {"type": "json_invalid", "loc": ("body",), "msg": f"no valid JSON: {error}"}
            raise _Refused(RequestValidationError([entry])) from error


def _too_large(limit: int, is_json: bool) -> PayloadTooLarge:
    hint = "; send supports in a binary format" if is_json else ""
    kind = "a JSON body" if is_json else "a body"
    return PayloadTooLarge(f"{kind} may have {limit} bytes at most{hint}")
