"""The cluster in the paths of learngenes, their bodies of two types, and ranges of their files."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, Final

from fastapi import Depends, Header, Path, Query, Request
from fastapi.exceptions import RequestValidationError

from app.infra.errors import RangeNotSatisfiable, ValuesNotKept
from app.infra.http.openapi import Refuses
from app.infra.http.requests.bodies import BODY_PROBLEMS, BodyLimits, media_type_of, read_body
from app.infra.http.requests.json_bodies import DECODED_BYTES_PER_BYTE, JsonParsers, JsonReading
from app.infra.http.requests.json_reading import validate_body
from app.infra.http.requests.memory_budget import Budgets, Reservation
from app.infra.http.requests.preconditions import match
from app.infra.http.schemas import Text
from app.infra.http.services import services_of
from app.infra.http.turns import tenant_of
from app.infra.preconditions import Precondition
from app.models.learngenes.records import WHOLE_SPACE, Content, Details
from app.models.learngenes.schemas import MAX_COUNT, LearngeneIn, Metrics
from app.models.learngenes.service import LearngeneService
from app.models.learngenes.validation import content_of_file, file_header
from app.tenancy.auth.dependencies import identify, require_scopes
from modelkin import wire
from modelkin.core.learngenes.manifest import ALL, tensors_of
from modelkin.errors import (
    InvalidLearngene,
    InvalidParameter,
    PayloadTooLarge,
    UnsupportedMediaType,
)

__all__ = [
    "LEARNGENE_BODY",
    "LEARNGENE_FILE",
    "ClusterName",
    "ClusterFilter",
    "FileDetails",
    "LearngeneMatch",
    "LearngenePayload",
    "Payload",
    "Version",
    "byte_range",
]

_TYPES: Final = (wire.JSON, wire.SAFETENSORS)
_CLUSTER: Final = re.compile(r"0|[1-9]\d{0,17}", re.ASCII)
_RANGE: Final = re.compile(r"bytes=(\d{0,18})-(\d{0,18})", re.ASCII)


def _manifest_schema() -> dict[str, Any]:
    """The schema of a manifest in one piece: FastAPI knows no model of this operation's body."""
    schema = LearngeneIn.model_json_schema()
    schema["properties"]["tensors"]["items"] = schema.pop("$defs")["TensorIn"]
    return schema


LEARNGENE_FILE: dict[str, Any] = {
    wire.SAFETENSORS: {"schema": {"type": "string", "format": "binary"}}
}
LEARNGENE_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            wire.JSON: {"schema": _manifest_schema()},
            **LEARNGENE_FILE,
        },
    }
}


def _cluster_of(text: str) -> int:
    if text == ALL:
        return WHOLE_SPACE
    if not _CLUSTER.fullmatch(text):
        raise InvalidParameter(
            "a cluster is the id that a clustering gives it, 0 or more, or all", field="cluster"
        )
    return int(text)


async def _cluster(
    cluster: Annotated[
        str, Path(description="the id of a cluster, or `all` for the whole space", max_length=100)
    ],
) -> int:
    return _cluster_of(cluster)


async def _cluster_filter(
    cluster: Annotated[
        str | None, Query(description="only those of this cluster, or of `all`", max_length=100)
    ] = None,
) -> int | None:
    return None if cluster is None else _cluster_of(cluster)


ClusterName = Annotated[int, Depends(_cluster)]
ClusterFilter = Annotated[int | None, Depends(_cluster_filter)]
Version = Annotated[
    int | None, Query(ge=1, le=2**63 - 1, description="of the learngene; the newest by default")
]


async def _match(
    if_match: Annotated[
        str | None,
        Header(description="publish only if the `ETag` of the newest version is this, else 412"),
    ] = None,
) -> Precondition | None:
    return None if if_match is None else match(if_match, "learngene of cluster")


LearngeneMatch = Annotated[Precondition | None, Depends(_match)]


async def _file_details(
    clustering: Annotated[
        str | None, Query(max_length=100, description="of a file: as in the manifest")
    ] = None,
    members: Annotated[
        int | None, Query(ge=1, le=MAX_COUNT, description="of a file: as in the manifest")
    ] = None,
    rounds: Annotated[
        int | None, Query(ge=0, le=MAX_COUNT, description="of a file: as in the manifest")
    ] = None,
    metrics: Annotated[
        str | None,
        Query(max_length=10_000, description="of a file: as in the manifest, an object as JSON"),
    ] = None,
    note: Annotated[Text | None, Query(description="of a file: as in the manifest")] = None,
) -> Details | None:
    given = (clustering, members, rounds, metrics, note)
    if all(value is None for value in given):
        return None
    numbers: dict[str, float] = {}
    if metrics is not None:
        numbers, wrong = validate_body(Metrics, metrics.encode(errors="surrogatepass"))
        if wrong:
            raise RequestValidationError(
                [{**entry, "loc": ("query", "metrics", *entry["loc"][1:])} for entry in wrong]
            )
    return Details(clustering, members, rounds, numbers, note)


FileDetails = Annotated[Details | None, Depends(_file_details)]
"""The details of a file in the query, since the body of a file has none."""


@dataclass(frozen=True, slots=True)
class Payload:
    """A manifest or a file, read but not decoded: that waits for a thread."""

    data: bytearray
    media_type: str
    hold: Reservation
    reading: JsonReading

    def decode(self, given: Details | None) -> tuple[Content, Details]:
        """Decode the published content, and its details.

        Args:
            given: the details in the query, which only a file needs.

        Raises:
            InvalidLearngene: the file, or its manifest, cannot be a learngene's.
            InvalidParameter: another field is wrong.
        """
        if self.media_type == wire.SAFETENSORS:
            header = file_header(self.data)
            self.hold.take(DECODED_BYTES_PER_BYTE * len(header))
            with self.reading(len(header)) as run:
                entries = run(tensors_of, header, len(self.data))
            return content_of_file(self.data, entries), given or Details()
        if given is not None:
            raise InvalidParameter(
                "the query says of a file what a manifest says itself: leave it out", field="query"
            )
        self.hold.take(DECODED_BYTES_PER_BYTE * len(self.data))
        with self.reading(len(self.data)) as run:
            manifest, wrong = run(validate_body, LearngeneIn, bytes(self.data))
        if wrong:
            raise RequestValidationError(wrong)
        assert isinstance(manifest, LearngeneIn)
        return manifest.content(), manifest.details()


async def _payload(request: Request) -> AsyncIterator[Payload]:
    media_type = media_type_of(request)
    if media_type not in _TYPES:
        given = f"not {media_type}" if media_type else "and none was sent"
        raise UnsupportedMediaType(f"Content-Type must be one of {', '.join(_TYPES)}, {given}")
    services, tenant = services_of(request), tenant_of(request)
    limits, learngenes = services[BodyLimits], services[LearngeneService]
    if media_type == wire.SAFETENSORS:
        require_scopes(identify(request), ["values"])
        learngenes.require_keeping()
        most = min(limits.max_bytes, learngenes.max_bytes)
        limits = replace(limits, max_bytes=most)
    with services[Budgets].holding(tenant) as (bodies, decoded):
        try:
            data = await read_body(request, limits, media_type, bodies)
        except PayloadTooLarge:
            if media_type != wire.SAFETENSORS:
                raise PayloadTooLarge(
                    f"a manifest may have {limits.max_json_bytes} bytes at most "
                    f"(MODELKIN_MAX_JSON_BYTES), some 80 for each tensor"
                ) from None
            raise PayloadTooLarge(
                f"the file of a learngene may have {limits.max_bytes} bytes at most "
                f"(MODELKIN_MAX_LEARNGENE_BYTES)"
            ) from None
        yield Payload(
            data, media_type, decoded, partial(services[JsonParsers].reading_on_thread, tenant)
        )


LearngenePayload = Annotated[
    Payload, Depends(_payload), Refuses(*BODY_PROBLEMS, InvalidLearngene, ValuesNotKept)
]
"""The body of a request: a manifest, or a file where the service keeps some."""


def byte_range(header: str | None, size: int) -> tuple[int, int] | None:
    """Return the first byte of a range and the byte after its last; None for the whole file.

    A server may ignore a ``Range`` that it does not understand, or that has several parts (RFC
    9110, 14.2).

    Args:
        header: the ``Range`` of a request.
        size: the bytes of the file.

    Raises:
        RangeNotSatisfiable: the range begins beyond the end.
    """
    found = _RANGE.fullmatch(header.strip().replace(" ", "")) if header else None
    if found is None or not (found[1] or found[2]):
        return None
    if not found[1]:
        begin, end = max(0, size - int(found[2])), size
    else:
        begin, end = int(found[1]), min(size, int(found[2]) + 1 if found[2] else size)
        if found[2] and int(found[2]) < begin:
            return None
    if begin >= size or begin == end:
        raise RangeNotSatisfiable(f"the file has {size} bytes", size=size)
    return begin, end
