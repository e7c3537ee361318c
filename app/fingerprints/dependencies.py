"""The body of a fingerprint, and what the query says of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import datetime
from typing import Annotated, Any, Final, Literal

from fastapi import Depends, Query, Request

from app.fingerprints.records import MAX_BYTES, Facts, PreparedFingerprint
from app.fingerprints.schemas import MAX_LICENSE
from app.fingerprints.service import FingerprintService
from app.infra.http.openapi import Refuses
from app.infra.http.requests.bodies import BODY_PROBLEMS, BodyLimits, media_type_of, read_body
from app.infra.http.requests.memory_budget import Budgets, Reservation
from app.infra.http.schemas import Text
from app.infra.http.services import services_of
from app.infra.http.turns import tenant_of
from modelkin import wire
from modelkin._validation import check_base_models
from modelkin.core.codecs import fingerprint as codec
from modelkin.core.codecs.checks import Payload
from modelkin.core.fingerprints.fingerprint import Fingerprint
from modelkin.core.kinship.lineage import BaseRelation
from modelkin.errors import (
    InvalidFingerprint,
    InvalidName,
    InvalidParameter,
    PayloadTooLarge,
    UnsupportedMediaType,
)

__all__ = [
    "FINGERPRINT_BODY",
    "FINGERPRINT_CONTENT",
    "FingerprintPayload",
    "StatedByFilter",
    "StatedFacts",
    "decoded_bytes",
]

FINGERPRINT_CONTENT: Final[dict[str, Any]] = {
    wire.FINGERPRINT: {"schema": {"type": "string", "format": "binary"}}
}
FINGERPRINT_BODY: Final[dict[str, Any]] = {
    "requestBody": {"required": True, "content": FINGERPRINT_CONTENT}
}
StatedByFilter = Annotated[
    Literal["hub", "client"] | None,
    Query(description="only those that the service read from a hub, or that clients sent"),
]
_COPIES: Final = 4
"""Copies of the content while it is decoded and checked."""
_OBJECTS: Final = 40
"""Memory of a tensor's objects for each of its bytes in the content, which are 40 or more."""
_MOST_OBJECTS: Final = 32 << 20
"""Memory of the objects of as many tensors as there may be."""


def decoded_bytes(data: Payload) -> int:
    """The most memory that a payload takes while it is decoded.

    Raises:
        InvalidFingerprint: it does not begin like one.
    """
    content = codec.content_bytes(data)
    return _COPIES * content + min(_OBJECTS * content, _MOST_OBJECTS)


class FingerprintBody:
    """The body of a request, read but not decoded: that waits for a thread."""

    def __init__(self, data: bytearray, hold: Reservation) -> None:
        self._data = data
        self._hold = hold

    def prepare(self, service: FingerprintService) -> PreparedFingerprint:
        """Decode the fingerprint, once there is memory for it.

        Raises:
            InvalidFingerprint: it states what is wrong with it.
        """
        self._hold.take(decoded_bytes(self._data))
        return service.prepare(bytes(self._data))

    def decode(self, service: FingerprintService) -> Fingerprint:
        """Decode the fingerprint, which is not to be stored, once there is memory for it.

        Raises:
            InvalidFingerprint: it states what is wrong with it.
        """
        self._hold.take(decoded_bytes(self._data))
        return service.decode(self._data)


async def _read(request: Request) -> AsyncIterator[FingerprintBody]:
    media_type = media_type_of(request)
    if media_type != wire.FINGERPRINT:
        given = f"not {media_type}" if media_type else "and none was sent"
        raise UnsupportedMediaType(f"Content-Type must be {wire.FINGERPRINT}, {given}")
    services, tenant = services_of(request), tenant_of(request)
    limits = services[BodyLimits]
    limits = replace(limits, max_bytes=min(limits.max_bytes, MAX_BYTES))
    with services[Budgets].holding(tenant) as (bodies, decoded):
        try:
            data = await read_body(request, limits, media_type, bodies)
        except PayloadTooLarge:
            raise PayloadTooLarge(
                f"a fingerprint may have {limits.max_bytes:,} bytes: take a coarser scale, by "
                f"Fingerprint.at"
            ) from None
        yield FingerprintBody(data, decoded)


FingerprintPayload = Annotated[
    FingerprintBody, Depends(_read), Refuses(*BODY_PROBLEMS, InvalidFingerprint)
]


async def _facts(
    base_model: Annotated[
        list[str] | None,
        Query(description="a model that it is made from, unchecked; repeat for several"),
    ] = None,
    base_relation: Annotated[
        BaseRelation | None, Query(description="what it is said to be of them")
    ] = None,
    license: Annotated[  # noqa: A002
        Text | None, Query(max_length=MAX_LICENSE, description="its licence, unchecked")
    ] = None,
    published_at: Annotated[
        datetime | None, Query(description="when the model was published, with an offset")
    ] = None,
    file_bytes: Annotated[
        int | None,
        Query(ge=0, le=2**63 - 1, description="the bytes of the files that it was made from"),
    ] = None,
) -> Facts:
    if published_at is not None and published_at.tzinfo is None:
        raise InvalidParameter(
            "published_at needs an offset, such as 2026-05-04T10:00:00Z", field="published_at"
        )
    bases = check_base_models(base_model or (), field="base_model")
    return Facts(bases, base_relation, license, published_at, file_bytes)


StatedFacts = Annotated[Facts, Depends(_facts), Refuses(InvalidName, InvalidParameter)]
