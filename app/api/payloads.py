"""Supports and signatures in requests and answers: which types, how read, how documented."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, Request

from app.api.bodies import media_type_of, read_body
from app.settings import Settings
from modelkin import wire
from modelkin.core.signature import Signature
from modelkin.core.support import Support, index_dtype
from modelkin.errors import UnsupportedMediaType

__all__ = [
    "ANY_BODY",
    "SIGNATURE_BODY",
    "SUPPORT_BODY",
    "SIGNATURE_CONTENT",
    "SUPPORT_CONTENT",
    "AnyPayload",
    "Payload",
    "SignaturePayload",
    "SupportPayload",
]

_BINARY = {"schema": {"type": "string", "format": "binary"}}
_SUPPORT_JSON = {
    "schema": {
        "type": "object",
        "required": ["indices"],
        "properties": {"indices": {"type": "array", "items": {"type": "integer", "minimum": 0}}},
    },
    "example": {"indices": [3, 17, 1024]},
}
_SIGNATURE_JSON = {
    "schema": {
        "type": "object",
        "required": ["scheme", "num_perm", "seed", "support_size", "values"],
        "properties": {
            "scheme": {"type": "string", "enum": ["affine32", "affine64", "fss32"]},
            "num_perm": {"type": "integer", "minimum": 1},
            "seed": {"type": "integer", "minimum": 0},
            "support_size": {"type": "integer", "minimum": 1},
            "values": {"type": "array", "items": {"type": "integer", "minimum": 0}},
        },
    },
    "example": {
        "scheme": "affine32",
        "num_perm": 4,
        "seed": 1,
        "support_size": 3,
        "values": [17, 4, 99, 5],
    },
}
SUPPORT_CONTENT: dict[str, Any] = {
    wire.SUPPORT: _BINARY,
    wire.ROARING: _BINARY,
    wire.RAW: _BINARY,
    wire.JSON: _SUPPORT_JSON,
}
SIGNATURE_CONTENT: dict[str, Any] = {wire.SIGNATURE: _BINARY, wire.JSON: _SIGNATURE_JSON}
_EITHER_JSON = {
    "schema": {"oneOf": [_SUPPORT_JSON["schema"], _SIGNATURE_JSON["schema"]]},
    "example": _SUPPORT_JSON["example"],
}

SUPPORT_BODY: dict[str, Any] = {"requestBody": {"required": True, "content": SUPPORT_CONTENT}}
SIGNATURE_BODY: dict[str, Any] = {"requestBody": {"required": True, "content": SIGNATURE_CONTENT}}
ANY_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {**SUPPORT_CONTENT, **SIGNATURE_CONTENT, wire.JSON: _EITHER_JSON},
    }
}


class Payload:
    """The body of a request, read but not decoded: that waits for the space, and a thread."""

    def __init__(self, data: bytes, media_type: str, settings: Settings) -> None:
        self._data = data
        self._media_type = media_type
        self._settings = settings

    def support(self, num_parameters: int) -> Support:
        """The support; :class:`InvalidSupport` says what is wrong with it."""
        max_k = self._max_k(num_parameters)
        return wire.load_support(self._data, self._media_type, num_parameters, max_k)

    def signature(self, num_parameters: int) -> Signature:
        """The signature; :class:`InvalidSignature` says what is wrong with it."""
        return wire.load_signature(self._data, self._media_type, num_parameters)

    def either(self, num_parameters: int) -> Support | Signature:
        """Whichever of the two it is."""
        max_k = self._max_k(num_parameters)
        return wire.load_either(self._data, self._media_type, num_parameters, max_k)

    def _max_k(self, num_parameters: int) -> int:
        """A body decodes to no more than it may itself have: a few bytes may mean gigabytes."""
        return self._settings.max_body_bytes // index_dtype(num_parameters).itemsize


class _Reader:
    """Reads the body of a request whose media type is one of ``types``."""

    def __init__(self, *types: str) -> None:
        self._types = tuple(dict.fromkeys(types))

    async def __call__(self, request: Request) -> Payload:
        media_type = media_type_of(request)
        if media_type not in self._types:
            given = f"not {media_type}" if media_type else "and none was sent"
            raise UnsupportedMediaType(
                f"Content-Type must be one of {', '.join(self._types)}, {given}"
            )
        settings: Settings = request.app.state.settings
        return Payload(await read_body(request, settings, media_type), media_type, settings)


SupportPayload = Annotated[Payload, Depends(_Reader(*SUPPORT_CONTENT))]
SignaturePayload = Annotated[Payload, Depends(_Reader(*SIGNATURE_CONTENT))]
AnyPayload = Annotated[Payload, Depends(_Reader(*SUPPORT_CONTENT, *SIGNATURE_CONTENT))]
