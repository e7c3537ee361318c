"""/v1/spaces/{space}/batch: many models in one request, a line each, and a line of answer for each.

``batch_lines`` reads the lines.
"""

from __future__ import annotations

from fastapi import Response
from pydantic_core import to_json

from app.infra.http.problems import describe_error
from app.infra.http.requests.bodies import BodyLimits
from app.infra.http.requests.json_lines import JSONL, MAX_LINES, LinesBody, split_lines
from app.infra.http.routes import Routes
from app.infra.http.services import Service
from app.models.catalog.batches import BatchService, Result
from app.models.catalog.endpoints.batch_lines import (
    ENCODED,
    LineReader,
)
from app.models.catalog.endpoints.payloads import SIGNATURE_SCHEMA
from app.models.catalog.puts import Stored
from app.models.spaces.dependencies import SpaceName
from app.models.spaces.service import SpaceService
from app.tenancy.auth.dependencies import AUTHENTICATED, REFUSALS, WritingContext
from modelkin import wire
from modelkin.core.importance import IMPORTANCE_KINDS

__all__ = ["routes"]

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
    '"detail":"a line has a signature, a support or a subspace: one of them"}}\n'
)
_LINE_IN = {
    "type": "object",
    "required": ["model"],
    "additionalProperties": False,
    "properties": {
        "model": {"type": "string"},
        "signature": SIGNATURE_SCHEMA,
        "sketch": {
            "type": "string",
            "contentEncoding": "base64",
            "contentMediaType": wire.SKETCH,
            "description": "beside a signature",
        },
        "support": {"type": "string", "contentEncoding": "base64"},
        "subspace": {
            "type": "string",
            "contentEncoding": "base64",
            "contentMediaType": wire.SUBSPACE,
            "description": "in a space of data subspaces",
        },
        "media_type": {"type": "string", "enum": list(ENCODED), "default": wire.SUPPORT},
        "importance": {"type": "string", "enum": list(IMPORTANCE_KINDS)},
        "base": {"type": "string", "description": "of importance delta: a digest"},
        "layout": {"type": "string", "description": "the digest of a layout"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "attributes": {"type": "object", "description": "16 KiB as JSON and 8 levels at most"},
        "source": {"type": "string"},
        "base_model": {"type": "string"},
    },
    "oneOf": [
        {"required": ["signature"]},
        {"required": ["support"]},
        {"required": ["subspace"]},
    ],
    "description": f"one line of at most {MAX_LINES:,}",
}
_LINE_OUT = {
    "type": "object",
    "required": ["model", "status"],
    "properties": {
        "model": {"type": ["string", "null"]},
        "status": {"type": "string", "enum": ["created", "replaced", "unchanged", "failed"]},
        "note": {"type": "string", "description": "as of PUT .../supports; left out without one"},
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
    "description": "the result of the line of the same number",
}

routes = Routes(
    prefix="/v1/spaces/{space}",
    tags=["models"],
    dependencies=AUTHENTICATED,
    responses=REFUSALS,
)


@routes.post(
    "/batch",
    operation_id="put_batch",
    summary="Store many models in one request",
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
    context: WritingContext,
    spaces: Service[SpaceService],
    batches: Service[BatchService],
    limits: Service[BodyLimits],
    space_name: SpaceName,
    body: LinesBody,
) -> Response:
    """Store many models: each line as its own PUT would, and a bad one never spoils the others.

    A line holds a model's `signature`, as its JSON, with its `sketch` in base64 where it has one,
    or its `support`, in base64, or the `subspace` of its data, in base64; `tags` and `attributes`
    replace those of the model where they are given, and `importance`, `base` and `layout` are as in
    PUT .../supports. `status` is `created`; `replaced`, where anything about the model changed;
    `unchanged`; or `failed`, and then `error` says why. Once this answers, all that did not fail is
    durable. Of several lines of one model the last stands. An error of the batch as a whole may
    have stored some lines: send it again.
    """
    with context.reading() as session:
        space = spaces.get(session, context.tenant, space_name)
        lines = split_lines(body.data)
        session.release()  # the space is known: no connection is held while lines are read
        longest = min(len(body.data), limits.max_json_bytes)
        reader = LineReader(
            limits,
            space.num_parameters,
            longest,
            body.hold,
            body.reading,
            max_columns=1 if space.subspaces is None else space.subspaces.max_columns,
        )
        results = batches.put(session, space, (reader.read(line) for line in lines))
    return Response(b"".join(map(_answer, results)), media_type=JSONL)


def _answer(result: Result) -> bytes:
    outcome = result.outcome
    if isinstance(outcome, Stored):
        said = {} if result.note is None else {"note": result.note}
        return to_json({"model": result.model, "status": outcome.status, **said}) + b"\n"
    failed = {"model": result.model, "status": "failed", "error": describe_error(outcome)}
    return to_json(failed) + b"\n"
