"""What the endpoints of anatomies read of a request."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any, Final

from fastapi import Depends, Query, Request

from app.infra.http.openapi import Refuses
from app.infra.http.requests.bodies import BODY_PROBLEMS, BodyLimits, media_type_of, read_body
from app.infra.http.requests.memory_budget import Budgets
from app.infra.http.services import services_of
from app.infra.http.turns import tenant_of
from modelkin import wire
from modelkin._validation import check_model_name
from modelkin.errors import InvalidFingerprint, InvalidName, UnsupportedMediaType

__all__ = ["FINGERPRINT_BODY", "Excluded", "FingerprintBody"]

FINGERPRINT_BODY: Final[dict[str, Any]] = {
    "requestBody": {
        "required": True,
        "content": {wire.FINGERPRINT: {"schema": {"type": "string", "format": "binary"}}},
    }
}
_DECODED: Final = 20
"""How much more memory a fingerprint takes than its payload, at the most."""


async def _body(request: Request) -> AsyncIterator[bytearray]:
    media_type = media_type_of(request)
    if media_type != wire.FINGERPRINT:
        given = f"not {media_type}" if media_type else "and none was sent"
        raise UnsupportedMediaType(f"Content-Type must be {wire.FINGERPRINT}, {given}")
    services = services_of(request)
    with services[Budgets].holding(tenant_of(request)) as (bodies, decoded):
        body = await read_body(request, services[BodyLimits], media_type, bodies)
        await decoded.take_in_turn(_DECODED * len(body))
        yield body


FingerprintBody = Annotated[bytearray, Depends(_body), Refuses(*BODY_PROBLEMS, InvalidFingerprint)]
"""The payload of a fingerprint, with memory for what it decodes to."""


async def _excluded(
    exclude: Annotated[
        list[str] | None,
        Query(max_length=20, description="a model that is left out; repeat for several"),
    ] = None,
) -> tuple[str, ...]:
    names = enumerate(exclude or ())
    return tuple(check_model_name(name, field=f"exclude[{at}]") for at, name in names)


Excluded = Annotated[tuple[str, ...], Depends(_excluded), Refuses(InvalidName)]
