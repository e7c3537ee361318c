"""Supports and signatures in requests and answers: which types, how read, how documented."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractContextManager
from functools import partial
from typing import Annotated, Any

from fastapi import Depends, Request

from app.infra.errors import WrongKind
from app.infra.http.openapi import Refuses
from app.infra.http.requests.bodies import BODY_PROBLEMS, BodyLimits, media_type_of, read_body
from app.infra.http.requests.json_bodies import (
    DECODED_BYTES_PER_BYTE,
    JsonParsers,
    JsonReading,
    Run,
)
from app.infra.http.requests.memory_budget import Budgets, Reservation
from app.infra.http.services import services_of
from app.infra.http.turns import tenant_of
from app.models.spaces.records import SpaceRecord
from modelkin import wire
from modelkin.core.codecs.checks import check_k
from modelkin.core.indices import index_dtype
from modelkin.core.patch import Patch
from modelkin.core.sketching.signature import Signature
from modelkin.core.sketching.sketch import Sketch
from modelkin.core.subspaces.subspace import Subspace
from modelkin.core.support import Support
from modelkin.errors import (
    InvalidSignature,
    InvalidSubspace,
    InvalidSupport,
    SpaceMismatch,
    UnsupportedMediaType,
)
from modelkin.types.spaces import SubspaceSpec

__all__ = [
    "ANY_BODY",
    "PATCH_BODY",
    "EITHER_BODY",
    "SIGNATURE_BODY",
    "SKETCH_BODY",
    "SUBSPACE_BODY",
    "SUBSPACE_CONTENT",
    "SUPPORT_BODY",
    "SIGNATURE_CONTENT",
    "SIGNATURE_SCHEMA",
    "SKETCH_CONTENT",
    "SUPPORT_CONTENT",
    "AnyPayload",
    "PatchPayload",
    "EitherPayload",
    "Payload",
    "SignaturePayload",
    "SketchPayload",
    "SubspacePayload",
    "SupportPayload",
    "max_indices",
]

_COPIES_PER_REQUEST = 3
"""Copies of the indices while a request works on them: decoded, packed, and one in between."""

_SUBSPACE_COPIES = 8
"""Copies of a subspace while it is read and checked: float16 becomes float32, and products."""

_BINARY = {"schema": {"type": "string", "format": "binary"}}
_SUPPORT_JSON = {
    "schema": {
        "type": "object",
        "required": ["indices"],
        "properties": {
            "indices": {"type": "array", "items": {"type": "integer", "minimum": 0}},
            "octaves": {
                "type": "array",
                "items": {"type": "integer", "minimum": 0, "maximum": 62},
                "description": "of an ordered support: floor(log2(r)) of the rank r of each index",
            },
        },
    },
    "example": {"indices": [3, 17, 1024]},
}
SIGNATURE_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["scheme", "num_perm", "seed", "support_size", "values"],
    "properties": {
        "scheme": {"type": "string", "enum": ["affine32", "affine64"]},
        "num_perm": {"type": "integer", "minimum": 1},
        "seed": {"type": "integer", "minimum": 0},
        "support_size": {"type": "integer", "minimum": 1},
        "values": {"type": "array", "items": {"type": "integer", "minimum": 0}},
    },
}
_SIGNATURE_JSON = {
    "schema": SIGNATURE_SCHEMA,
    "example": {
        "scheme": "affine32",
        "num_perm": 4,
        "seed": 1,
        "support_size": 3,
        "values": [17, 4, 99, 5],
    },
}


def _content(types: Iterable[str], json: dict[str, Any]) -> dict[str, Any]:
    """Return the content of a body or an answer for OpenAPI: JSON by its schema, else bytes."""
    return {name: json if name == wire.JSON else _BINARY for name in types}


SUPPORT_CONTENT = _content(wire.SUPPORT_TYPES, _SUPPORT_JSON)
SKETCH_CONTENT: dict[str, Any] = {wire.SKETCH: _BINARY}
_SUBSPACE_JSON = {
    "schema": {
        "type": "object",
        "required": ["num_features", "blocks"],
        "properties": {
            "num_features": {"type": "integer", "minimum": 2},
            "constant": {"type": "number"},
            "weighting": {"type": "string", "enum": ["spectrum", "flat"]},
            "epsilon": {"type": ["number", "null"]},
            "delta": {"type": ["number", "null"]},
            "blocks": {
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["weights", "columns"],
                    "properties": {
                        "label": {"type": ["integer", "null"]},
                        "weights": {"type": "array", "items": {"type": "number"}},
                        "columns": {
                            "type": "array",
                            "items": {"type": "array", "items": {"type": "number"}},
                        },
                    },
                },
            },
        },
    },
    "example": {
        "num_features": 2,
        "constant": 0,
        "weighting": "spectrum",
        "blocks": [{"label": None, "weights": [1.0], "columns": [[0.6, 0.8]]}],
    },
}
SUBSPACE_CONTENT = _content(wire.SUBSPACE_TYPES, _SUBSPACE_JSON)
SIGNATURE_CONTENT = _content(wire.SIGNATURE_TYPES, _SIGNATURE_JSON)
_PATCH_JSON = {
    "schema": {
        "type": "object",
        "required": ["added", "removed"],
        "properties": {
            "added": {"type": "array", "items": {"type": "integer", "minimum": 0}},
            "removed": {"type": "array", "items": {"type": "integer", "minimum": 0}},
            "digest": {"type": "string", "description": "of the result, which is verified with it"},
        },
    },
    "example": {"added": [5, 2048], "removed": [17]},
}
PATCH_CONTENT = _content(wire.PATCH_TYPES, _PATCH_JSON)
_EITHER_JSON = {
    "schema": {
        "oneOf": [_SUPPORT_JSON["schema"], _SIGNATURE_JSON["schema"], _SUBSPACE_JSON["schema"]]
    },
    "example": _SUPPORT_JSON["example"],
}

SUPPORT_BODY: dict[str, Any] = {"requestBody": {"required": True, "content": SUPPORT_CONTENT}}
PATCH_BODY: dict[str, Any] = {"requestBody": {"required": True, "content": PATCH_CONTENT}}
SKETCH_BODY: dict[str, Any] = {"requestBody": {"required": True, "content": SKETCH_CONTENT}}
SUBSPACE_BODY: dict[str, Any] = {"requestBody": {"required": True, "content": SUBSPACE_CONTENT}}
SIGNATURE_BODY: dict[str, Any] = {"requestBody": {"required": True, "content": SIGNATURE_CONTENT}}
EITHER_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            **SUPPORT_CONTENT,
            **SIGNATURE_CONTENT,
            wire.JSON: {
                "schema": {"oneOf": [_SUPPORT_JSON["schema"], _SIGNATURE_JSON["schema"]]},
                "example": _SUPPORT_JSON["example"],
            },
        },
    }
}
ANY_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            **SUPPORT_CONTENT,
            **SIGNATURE_CONTENT,
            **SUBSPACE_CONTENT,
            wire.JSON: _EITHER_JSON,
        },
    }
}


class Payload:
    """The body of a request, read but not decoded: that waits for the space, and a thread."""

    def __init__(
        self,
        data: bytearray,
        media_type: str,
        limits: BodyLimits,
        hold: Reservation,
        reading: JsonReading,
    ) -> None:
        self._data = data
        self._media_type = media_type
        self._limits = limits
        self._hold = hold
        self._reading = reading

    def support(self, num_parameters: int) -> Support:
        """Decode the support; :class:`InvalidSupport` states what is wrong with it."""
        max_k = self._reserve(num_parameters)
        with self._turn() as run:
            return run(wire.load_support, self._data, self._media_type, num_parameters, max_k)

    def signature(self, num_parameters: int) -> Signature:
        """Decode the signature; :class:`InvalidSignature` states what is wrong with it."""
        self._hold.take(self._parsed_bytes)
        with self._turn() as run:
            return run(wire.load_signature, self._data, self._media_type, num_parameters)

    def sketch(self, num_parameters: int) -> Sketch:
        """Decode the sketch; :class:`InvalidSignature` states what is wrong with it."""
        return wire.decode_sketch(self._data, num_parameters=num_parameters)

    def reserve_for_patch(self, num_parameters: int, k: int) -> None:
        """Wait for memory for a support of K indices, for what changes in it and for the result."""
        most = max_indices(self._limits, num_parameters)
        added = min(most, wire.count_added(self._data, self._media_type))
        indices = _COPIES_PER_REQUEST * 2 * (k + added) * index_dtype(num_parameters).itemsize
        self._hold.take(self._parsed_bytes + indices)

    def patch(self, before: Support) -> Patch:
        """Decode the patch of ``before``; :class:`InvalidSupport` states what is wrong with it."""
        most = max_indices(self._limits, before.num_parameters)
        if self._media_type != wire.JSON:
            return wire.load_patch(self._data, self._media_type, before, most)
        with self._turn() as run:
            patch = run(wire.load_json_patch, self._data, before.num_parameters)
        check_k(before.k - patch.removed.size + patch.added.size, most)
        return patch

    def either(self, num_parameters: int) -> Support | Signature:
        """Decode a support or a signature, whichever the body is."""
        max_k = self._reserve(num_parameters)
        with self._turn() as run:
            return run(wire.load_either, self._data, self._media_type, num_parameters, max_k)

    def subspace(self, space: SpaceRecord) -> Subspace:
        """Decode the data subspace; :class:`InvalidSubspace` states what is wrong with it."""
        spec = space.subspaces or SubspaceSpec()
        self._hold.take(_SUBSPACE_COPIES * len(self._data) + self._parsed_bytes)
        with self._turn() as run:
            return run(
                partial(wire.load_subspace, constant=spec.constant, max_columns=spec.max_columns),
                self._data,
                self._media_type,
            )

    def of_kind(self, space: SpaceRecord) -> Support | Signature | Subspace:
        """Decode the body as data that the models of this space are compared by.

        Raises:
            WrongKind: the body is for spaces of the other kind.
        """
        if self._media_type in (wire.SUBSPACE, wire.NPY) and space.kind == "supports":
            raise WrongKind(f"space {space.name!r} holds supports, and this is a data subspace")
        if space.kind == "supports":
            return self.either(space.num_parameters)
        if self._media_type not in wire.SUBSPACE_TYPES:
            raise WrongKind(
                f"space {space.name!r} holds data subspaces, and not {self._media_type}: send "
                f"{wire.SUBSPACE}"
            )
        return self.subspace(space)

    def _reserve(self, num_parameters: int) -> int:
        """Wait for memory for the declared indices and octaves; return the most to decode."""
        most = max_indices(self._limits, num_parameters)
        count = min(most, wire.count_indices(self._data, self._media_type, num_parameters))
        octaves = min(most, wire.count_octaves(self._data, self._media_type))
        content = count * index_dtype(num_parameters).itemsize + octaves
        self._hold.take(self._parsed_bytes + _COPIES_PER_REQUEST * content)
        return most

    @property
    def _parsed_bytes(self) -> int:
        """Memory for the values that a JSON parser makes of the body."""
        return DECODED_BYTES_PER_BYTE * len(self._data) if self._media_type == wire.JSON else 0

    def _turn(self) -> AbstractContextManager[Run]:
        """Return the turn for decoding: only JSON may need one."""
        return self._reading(len(self._data) if self._media_type == wire.JSON else 0)


def max_indices(limits: BodyLimits, num_parameters: int) -> int:
    """The most indices that a request may decode to."""
    return limits.max_bytes // index_dtype(num_parameters).itemsize


class _Reader:
    """Reads the body of a request whose media type is one of ``types``."""

    def __init__(self, *types: str) -> None:
        self._types = tuple(dict.fromkeys(types))

    async def __call__(self, request: Request) -> AsyncIterator[Payload]:
        media_type = media_type_of(request)
        if media_type not in self._types:
            given = f"not {media_type}" if media_type else "and none was sent"
            raise UnsupportedMediaType(
                f"Content-Type must be one of {', '.join(self._types)}, {given}"
            )
        services, tenant = services_of(request), tenant_of(request)
        limits = services[BodyLimits]
        with services[Budgets].holding(tenant) as (bodies, decoded):
            body = await read_body(request, limits, media_type, bodies)
            reading = partial(services[JsonParsers].reading_on_thread, tenant)
            yield Payload(body, media_type, limits, decoded, reading)


SupportPayload = Annotated[
    Payload, Depends(_Reader(*SUPPORT_CONTENT)), Refuses(*BODY_PROBLEMS, InvalidSupport)
]
PatchPayload = Annotated[
    Payload, Depends(_Reader(*PATCH_CONTENT)), Refuses(*BODY_PROBLEMS, InvalidSupport)
]
SketchPayload = Annotated[
    Payload, Depends(_Reader(*SKETCH_CONTENT)), Refuses(*BODY_PROBLEMS, InvalidSignature)
]
SignaturePayload = Annotated[
    Payload, Depends(_Reader(*SIGNATURE_CONTENT)), Refuses(*BODY_PROBLEMS, InvalidSignature)
]
EitherPayload = Annotated[
    Payload,
    Depends(_Reader(*SUPPORT_CONTENT, *SIGNATURE_CONTENT)),
    Refuses(*BODY_PROBLEMS, InvalidSupport, InvalidSignature, SpaceMismatch),
]
SubspacePayload = Annotated[
    Payload, Depends(_Reader(*SUBSPACE_CONTENT)), Refuses(*BODY_PROBLEMS, InvalidSubspace)
]
AnyPayload = Annotated[
    Payload,
    Depends(_Reader(*SUPPORT_CONTENT, *SIGNATURE_CONTENT, *SUBSPACE_CONTENT)),
    Refuses(
        *BODY_PROBLEMS,
        InvalidSupport,
        InvalidSignature,
        InvalidSubspace,
        SpaceMismatch,
        WrongKind,
    ),
]
