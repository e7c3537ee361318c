"""POST /v1/fingerprints: many fingerprints in one request, a line each, and a line of answer."""

from __future__ import annotations

from typing import Any, Final

from fastapi import Response
from pydantic import ValidationError
from pydantic_core import to_json

from app.fingerprints.batches import FingerprintBatches, RefusedFingerprint, Result
from app.fingerprints.dependencies import decoded_bytes
from app.fingerprints.records import FingerprintPut, Stored
from app.fingerprints.schemas import FingerprintLineIn
from app.fingerprints.service import FingerprintService
from app.infra.errors import Unavailable
from app.infra.http.problems import describe_error, fields_of
from app.infra.http.requests.bodies import BodyLimits
from app.infra.http.requests.json_bodies import DECODED_BYTES_PER_BYTE, JsonReading
from app.infra.http.requests.json_lines import (
    JSONL,
    MAX_LINES,
    LinesBody,
    decode_base64,
    split_lines,
)
from app.infra.http.requests.json_reading import parse_strictly
from app.infra.http.requests.memory_budget import Reservation
from app.infra.http.routes import Routes
from app.infra.http.services import Service
from app.tenancy.auth.dependencies import AUTHENTICATED, REFUSALS, WritingContext
from modelkin import wire
from modelkin._validation import check_model_name
from modelkin.core.kinship.lineage import BASE_RELATIONS
from modelkin.errors import InvalidFingerprint, InvalidParameter, ModelkinError, PayloadTooLarge

__all__ = ["routes"]

routes = Routes(
    prefix="/v1/fingerprints",
    tags=["fingerprints"],
    dependencies=AUTHENTICATED,
    responses=REFUSALS,
)

_EXAMPLE_IN: Final = (
    '{"model":"org/a","fingerprint":"TUtGUA==","base_models":["org/base"],"license":"mit"}\n'
)
_EXAMPLE_OUT: Final = (
    '{"model":"org/a","status":"failed","error":{"code":"invalid_fingerprint",'
    '"detail":"the payload ends after 4 bytes, header and checksum alone take 72: send it again"}}'
    "\n"
)
_LINE_IN: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["model", "fingerprint"],
    "additionalProperties": False,
    "properties": {
        "model": {"type": "string"},
        "fingerprint": {
            "type": "string",
            "contentEncoding": "base64",
            "contentMediaType": wire.FINGERPRINT,
        },
        "base_models": {"type": "array", "items": {"type": "string"}},
        "base_relation": {"type": "string", "enum": list(BASE_RELATIONS)},
        "license": {"type": "string"},
        "published_at": {"type": "string", "format": "date-time"},
        "file_bytes": {"type": "integer", "minimum": 0},
    },
    "description": f"one line of at most {MAX_LINES:,}",
}
_LINE_OUT: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["model", "status"],
    "properties": {
        "model": {"type": ["string", "null"]},
        "status": {"type": "string", "enum": ["created", "replaced", "unchanged", "failed"]},
        "error": {
            "type": "object",
            "required": ["code", "detail"],
            "properties": {"code": {"type": "string"}, "detail": {"type": "string"}},
        },
    },
    "description": "the result of the line of the same number",
}


@routes.post(
    "",
    operation_id="put_fingerprints",
    summary="Store many fingerprints in one request",
    response_class=Response,
    refuses=(InvalidParameter,),
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
def put_fingerprints(
    context: WritingContext,
    service: Service[FingerprintService],
    batches: Service[FingerprintBatches],
    limits: Service[BodyLimits],
    body: LinesBody,
) -> Response:
    """Store many fingerprints: each line as its own PUT would, and a bad one spoils no other.

    A line holds a model's `fingerprint`, in base64, and what is said of it, as in the query of a
    PUT. `status` is `created`; `replaced`, where anything about it changed; `unchanged`; or
    `failed`, and then `error` says why. Once this answers, all that did not fail is durable. An
    error of the batch as a whole may have stored some lines: send it again.
    """
    reader = _LineReader(service, limits.max_json_bytes, body.hold, body.reading)
    results = batches.put(context.tenant, map(reader.read, split_lines(body.data)))
    return Response(b"".join(map(_answer, results)), media_type=JSONL)


class _LineReader:
    """Reads lines into puts, one at a time, in as much memory as the greatest of them needs."""

    def __init__(
        self, service: FingerprintService, longest: int, hold: Reservation, reading: JsonReading
    ) -> None:
        self._service = service
        self._longest = longest
        self._hold = hold
        self._reading = reading
        self._held = 0

    def read(self, line: memoryview) -> FingerprintPut | RefusedFingerprint:
        """The put of a line, or its refusal.

        Raises:
            Unavailable: there is no memory or no turn for it now; no later line has a chance.
        """
        model: str | None = None
        try:
            if len(line) > self._longest:
                raise PayloadTooLarge(
                    f"a line may have {self._longest} bytes at most, this has {len(line)}: send a "
                    f"large fingerprint by itself, with PUT"
                )
            self._require(DECODED_BYTES_PER_BYTE * len(line))
            with self._reading(len(line)) as run:
                model, fields = run(_fields, bytes(line))
            if isinstance(fields, ModelkinError):
                raise fields
            data = decode_base64(fields.fingerprint, "fingerprint", InvalidFingerprint)
            self._require(decoded_bytes(data))
            content = self._service.prepare(data)
            return FingerprintPut(fields.model, content, "client", fields.facts())
        except Unavailable:
            raise
        except ModelkinError as error:
            return RefusedFingerprint(model, error)

    def _require(self, size: int) -> None:
        if size > self._held:
            self._hold.take(size - self._held)
            self._held = size


def _fields(line: bytes) -> tuple[str | None, FingerprintLineIn | ModelkinError]:
    """The fields of a line, or its error; and the name of its model, if it has one."""
    model: str | None = None
    try:
        document = parse_strictly(line)
        if not isinstance(document, dict):
            raise InvalidParameter("the line is not a JSON object")
        model = check_model_name(document.get("model"))
        fields = FingerprintLineIn.model_validate_json(line)
        fields.facts()
        return model, fields.model_copy(update={"model": model})
    except ValidationError as error:
        first = fields_of(error.errors())[0]
        problem = f"{first['field']}: {first['message']}"
        return model, InvalidParameter(problem, field=first["field"])
    except ModelkinError as error:
        return model, error


def _answer(result: Result) -> bytes:
    outcome = result.outcome
    if isinstance(outcome, ModelkinError):
        failed = {"model": result.model, "status": "failed", "error": describe_error(outcome)}
        return to_json(failed) + b"\n"
    return to_json({"model": result.model, "status": _status(outcome)}) + b"\n"


def _status(stored: Stored) -> str:
    if stored.created:
        return "created"
    return "replaced" if stored.is_written else "unchanged"
