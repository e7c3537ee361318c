"""Bodies of many JSON documents, a line each: read whole, and split without a copy.

Everything is read before anything is answered, for the stack cannot stream both ways at once; so a
batch has an end.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Final

from fastapi import Depends, Request

from app.infra.http.openapi import Refuses
from app.infra.http.requests.bodies import BODY_PROBLEMS, BodyLimits, media_type_of, read_body
from app.infra.http.requests.json_bodies import JsonParsers, JsonReading
from app.infra.http.requests.memory_budget import Budgets, Reservation
from app.infra.http.services import services_of
from app.infra.http.turns import tenant_of
from modelkin.errors import (
    InvalidInput,
    InvalidParameter,
    PayloadTooLarge,
    UnsupportedMediaType,
)

__all__ = ["JSONL", "MAX_LINES", "LinesBody", "decode_base64", "split_lines"]

JSONL: Final = "application/jsonl"
MAX_LINES: Final = 10_000


@dataclass(frozen=True, slots=True)
class ReceivedLines:
    """The body of a batch, the memory that its lines may take, and the reader of lines."""

    data: bytearray
    hold: Reservation
    reading: JsonReading


async def _read(request: Request) -> AsyncIterator[ReceivedLines]:
    media_type = media_type_of(request)
    if media_type != JSONL:
        given = f"not {media_type}" if media_type else "and none was sent"
        raise UnsupportedMediaType(f"Content-Type must be {JSONL}, {given}")
    services, tenant = services_of(request), tenant_of(request)
    with services[Budgets].holding(tenant) as (bodies, decoded):
        data = await read_body(request, services[BodyLimits], media_type, bodies)
        reading = partial(services[JsonParsers].reading_on_thread, tenant)
        yield ReceivedLines(data, decoded, reading)


LinesBody = Annotated[ReceivedLines, Depends(_read), Refuses(*BODY_PROBLEMS)]
"""The body of a request with a document a line."""


def split_lines(body: bytearray) -> Iterator[memoryview]:
    """The lines, without a copy, after a check of their number.

    Raises:
        InvalidParameter: there is no line.
        PayloadTooLarge: there are more than ``MAX_LINES``.
    """
    if not body:
        raise InvalidParameter("the batch is empty: send a line for each model")
    count = body.count(b"\n") + (not body.endswith(b"\n"))
    if count > MAX_LINES:
        raise PayloadTooLarge(f"a batch has {MAX_LINES} lines at most, this has {count}: split it")
    return _lines(body)


def _lines(body: bytearray) -> Iterator[memoryview]:
    view = memoryview(body)
    start = 0
    while start < len(body):
        end = body.find(b"\n", start)
        end = len(body) if end < 0 else end
        yield view[start:end]
        start = end + 1


def decode_base64(text: str, field: str, error: type[InvalidInput]) -> bytes:
    """The bytes of a field of a line; an error of this type that names the field."""
    try:
        return base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error) as reason:
        raise error(f"{field} is not base64 (RFC 4648, section 4): {reason}", field=field) from None
