"""/v1/spaces/{space}/batch: many models in one request, a line each, and a line of answer for each.

Owns the lines: how they are cut, read strictly and answered. Everything is read before anything is
answered, for the stack cannot stream both ways at once; so a batch has an end.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Request, Response
from pydantic import ValidationError
from pydantic_core import to_json

from app.api.auth import AUTHENTICATED
from app.api.bodies import media_type_of, parse_strictly, read_body
from app.api.deps import Handle, Reading, WritableSpace
from app.api.errors import described, fields_of
from app.api.payloads import SIGNATURE_SCHEMA, max_indices
from app.api.schemas import BatchLineIn
from app.services.batch import Entry, Refused, Result
from app.services.ingest import Stored
from app.settings import Settings
from modelkin import wire
from modelkin.core.signature import Signature
from modelkin.core.support import Support
from modelkin.errors import (
    InvalidParameter,
    InvalidSupport,
    ModelkinError,
    PayloadTooLarge,
    UnsupportedMediaType,
)
from modelkin.names import check_model_name, check_tags

__all__ = ["JSONL", "MAX_LINES", "router"]

JSONL: Final = "application/jsonl"
MAX_LINES: Final = 10_000

_ENCODED = (wire.SUPPORT, wire.ROARING, wire.RAW)
"""The media types of a support in base64; indices as JSON would be text within text."""

_EXAMPLE_IN = (
    '{"model":"org/a","signature":{"scheme":"affine32","num_perm":4,"seed":1,'
    '"support_size":3,"values":[17,4,99,5]},"tags":["round-3"]}\n'
    '{"model":"org/b","support":"AwAAABEAAAAABAAA","media_type":"application/octet-stream",'
    '"attributes":{"site":7}}\n'
    '{"model":"org/c"}\n'
)
_EXAMPLE_OUT = (
    '{"model":"org/a","status":"created"}\n'
    '{"model":"org/b","status":"created"}\n'
    '{"model":"org/c","status":"failed","error":{"code":"invalid_parameter",'
    '"detail":"a line has a signature or a support, and not both"}}\n'
)
_LINE_IN = {
    "type": "object",
    "required": ["model"],
    "additionalProperties": False,
    "properties": {
        "model": {"type": "string"},
        "signature": SIGNATURE_SCHEMA,
        "support": {"type": "string", "contentEncoding": "base64"},
        "media_type": {"type": "string", "enum": list(_ENCODED), "default": wire.SUPPORT},
        "tags": {"type": "array", "items": {"type": "string"}},
        "attributes": {"type": "object"},
    },
    "oneOf": [{"required": ["signature"]}, {"required": ["support"]}],
    "description": f"one line of at most {MAX_LINES:,}",
}
_LINE_OUT = {
    "type": "object",
    "required": ["model", "status"],
    "properties": {
        "model": {"type": ["string", "null"]},
        "status": {"type": "string", "enum": ["created", "replaced", "unchanged", "failed"]},
        "error": {
            "type": "object",
            "required": ["code", "detail"],
            "properties": {
                "code": {"type": "string"},
                "detail": {"type": "string"},
                "errors": {"type": "array", "items": {"type": "object"}},
            },
        },
    },
    "description": "what became of the line of the same number",
}

router = APIRouter(prefix="/v1/spaces/{space}", tags=["models"], dependencies=AUTHENTICATED)


async def _read(request: Request) -> bytes:
    media_type = media_type_of(request)
    if media_type != JSONL:
        given = f"not {media_type}" if media_type else "and none was sent"
        raise UnsupportedMediaType(f"Content-Type must be {JSONL}, {given}")
    settings: Settings = request.app.state.settings
    return bytes(await read_body(request, settings, media_type))


@router.post(
    "/batch",
    operation_id="put_batch",
    response_class=Response,
    responses={
        200: {
            "content": {JSONL: {"schema": _LINE_OUT, "example": _EXAMPLE_OUT}},
            "description": "A line for each line, in their order",
        }
    },
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {JSONL: {"schema": _LINE_IN, "example": _EXAMPLE_IN}},
        }
    },
)
def put_batch(
    resources: Handle,
    body: Annotated[bytes, Depends(_read)],  # before a connection is taken, as in supports
    space: WritableSpace,
    reading: Reading,
) -> Response:
    """Store many models: each line as its own PUT would, and a bad one never spoils the others.

    A line holds a model's `signature`, as its JSON, or its `support`, in base64; `tags` and
    `attributes` replace those of the model where they are given. `status` is `created`;
    `replaced`, where anything about the model changed; `unchanged`; or `failed`, and then `error`
    says why. Once this answers, all that did not fail is durable. Of several lines of one model the
    last stands. An error of the batch as a whole may have stored some lines: send it again.
    """
    lines = _cut(body)
    reading.rollback()  # the space is known: no connection is held while lines are read
    reader = _LineReader(resources.settings, space.num_parameters)
    results = resources.batch.put(reading, space, (reader.read(line) for line in lines))
    return Response(b"".join(map(_answer, results)), media_type=JSONL)


def _cut(body: bytes) -> Iterator[memoryview]:
    """The lines, without a copy, once it is known that there are not too many."""
    if not body:
        raise InvalidParameter("the batch is empty: send a line for each model")
    count = body.count(b"\n") + (not body.endswith(b"\n"))
    if count > MAX_LINES:
        raise PayloadTooLarge(f"a batch has {MAX_LINES} lines at most, this has {count}: split it")
    return _lines(body)


def _lines(body: bytes) -> Iterator[memoryview]:
    view = memoryview(body)
    start = 0
    while start < len(body):
        end = body.find(b"\n", start)
        end = len(body) if end < 0 else end
        yield view[start:end]
        start = end + 1


class _LineReader:
    """Reads lines into entries; together they decode to no more than a single body may."""

    def __init__(self, settings: Settings, num_parameters: int) -> None:
        self._longest = settings.max_json_bytes
        self._num_parameters = num_parameters
        self._room = max_indices(settings, num_parameters)

    def read(self, line: memoryview) -> Entry | Refused:
        """The entry of a line, or why it is none."""
        model: str | None = None
        try:
            document = self._parse(line)
            model = check_model_name(document.get("model"))
            fields = _validated(document)
            tags = None if fields.tags is None else check_tags(fields.tags)
            return Entry(model, self._content(fields), tags, fields.attributes)
        except ModelkinError as error:
            return Refused(model, error)

    def _parse(self, line: memoryview) -> dict[str, Any]:
        if len(line) > self._longest:
            raise PayloadTooLarge(
                f"a line may have {self._longest} bytes at most, this has {len(line)}: "
                f"send a large support by itself, to PUT .../supports"
            )
        try:
            document = parse_strictly(bytes(line))
        except ValueError as error:
            raise InvalidParameter(f"the line is no valid JSON: {error}") from None
        if not isinstance(document, dict):
            raise InvalidParameter("the line is no JSON object")
        return document

    def _content(self, fields: BatchLineIn) -> Support | Signature:
        if (fields.signature is None) == (fields.support is None):
            raise InvalidParameter("a line has a signature or a support, and not both")
        if fields.signature is not None:
            if fields.media_type is not None:
                raise InvalidParameter(
                    "media_type is that of a support: a signature is JSON here", field="media_type"
                )
            return wire.signature_from_json(fields.signature, self._num_parameters)
        return self._support(fields.support or "", fields.media_type or wire.SUPPORT)

    def _support(self, text: str, media_type: str) -> Support:
        if media_type not in _ENCODED:
            raise UnsupportedMediaType(f"media_type must be one of {', '.join(_ENCODED)}")
        try:
            data = base64.b64decode(text, validate=True)
        except (ValueError, binascii.Error) as error:
            raise InvalidSupport(
                f"support is no base64 (RFC 4648, section 4): {error}", field="support"
            ) from None
        try:
            support = wire.load_support(data, media_type, self._num_parameters, self._room)
        except PayloadTooLarge as error:
            raise PayloadTooLarge(
                f"{error}: the supports of a batch decode together to no more than one body may; "
                f"send this one in another batch"
            ) from None
        self._room -= support.k
        return support


def _validated(document: dict[str, Any]) -> BatchLineIn:
    try:
        return BatchLineIn.model_validate(document)
    except ValidationError as error:
        first = fields_of(error.errors())[0]
        raise InvalidParameter(
            f"{first['field']}: {first['message']}", field=first["field"]
        ) from None


def _answer(result: Result) -> bytes:
    model, outcome = result
    if isinstance(outcome, Stored):
        return to_json({"model": model, "status": outcome.status}) + b"\n"
    return to_json({"model": model, "status": "failed", "error": described(outcome)}) + b"\n"
