"""The calls of a bulk upload: a chunk of lines in one request, or one item by itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, Literal

import msgspec

from modelkin.client._protocol import models, subspaces, supports
from modelkin.client._protocol.calls.call import Call, content_of
from modelkin.client._protocol.calls.decoding import UnknownFormError, decode
from modelkin.client._protocol.calls.flows import Flow
from modelkin.client._protocol.calls.requests import ALWAYS, space_path
from modelkin.client._protocol.uploads.lines import Chunk
from modelkin.client._transport.bounds import MAX_JSON_BYTES
from modelkin.client._transport.messages import Request, Response
from modelkin.core.subspaces.subspace import Subspace
from modelkin.core.support import Support
from modelkin.core.tensor_order import blinding_of
from modelkin.errors import ApiError
from modelkin.types.models import BulkItem, BulkResult
from modelkin.types.vocabulary import BulkStatus

__all__ = ["ITEM_REFUSALS", "put_chunk", "put_lines"]

_JSONL: Final = "application/jsonl"
_MAX_RESULT_BYTES: Final = 1 << 16
"""The most bytes of the result of one item, on average."""
ITEM_REFUSALS: Final = frozenset({409, 413, 422})
"""Statuses that concern one model, so that the upload goes on."""


def put_lines(path: str, chunk: Chunk) -> Flow[tuple[BulkResult, ...]]:
    """Store the lines of a chunk in one request."""
    names = [line.model for line in chunk.lines]
    headers = {"Accept": _JSONL, "Content-Type": _JSONL}
    # Each line is stored as by a PUT: the same lines again change nothing.
    most = min(MAX_JSON_BYTES, len(names) * _MAX_RESULT_BYTES)
    data = b"".join(line.data for line in chunk.lines)
    request = Request("POST", path, (), headers, data, idempotent=True, most=most)
    results: tuple[BulkResult, ...] = yield Call(request, lambda r: _read_results(r, names))
    return results


def put_chunk(space: str, chunk: Chunk) -> Flow[tuple[BulkResult, ...]]:
    """Put the models of a chunk in a space."""
    alone = chunk.lines[0].alone
    if isinstance(alone, BulkItem):
        return _put_alone(space, alone)
    return put_lines(f"{space_path(space)}/batch", chunk)


def _put_alone(space: str, item: BulkItem) -> Flow[tuple[BulkResult, ...]]:
    """Put one model. Its old version tells replaced from unchanged."""
    try:
        before = None
        try:
            before = (yield models.get(space, item.model)).version
        except ApiError as error:
            if error.problem_code != "model_not_found":
                raise
        if isinstance(item.content, Subspace):
            put = subspaces.put(space, item.model, item.content, item.tags, ALWAYS)
        elif isinstance(item.content, Support):
            put = supports.put_support(space, item.model, item.content, item.tags, ALWAYS)
        else:
            put = supports.put_signature(space, item.model, item.content, item.tags, ALWAYS)
        stored = yield put
        note = stored.note
        if item.sketch is not None:
            stored = yield supports.put_sketch(
                space, item.model, item.sketch, None, blinding_of(item.content)
            )
        described = models.describe(space, stored, item.attributes, item.source, item.base_model)
        if described is not None:
            stored = yield described
    except ApiError as error:
        if error.status not in ITEM_REFUSALS:
            raise
        return (BulkResult(item.model, "failed", error.problem_code, error.detail),)
    status: BulkStatus = "created"
    if before is not None:
        status = "unchanged" if stored.version == before else "replaced"
    return (BulkResult(item.model, status, note=note),)


class _ItemError(msgspec.Struct):
    code: str
    detail: str


class _ResultLine(msgspec.Struct):
    status: Literal["created", "replaced", "unchanged", "failed"]
    error: _ItemError | None = None
    note: str | None = None


def _read_results(response: Response, names: Sequence[str]) -> tuple[BulkResult, ...]:
    lines = content_of(response, _JSONL).splitlines()
    if len(lines) != len(names):
        raise UnknownFormError(f"there are {len(lines)} results, not {len(names)}")
    return tuple(
        _result(decode(replace(response, content=line), _ResultLine), name)
        for line, name in zip(lines, names, strict=True)
    )


def _result(line: _ResultLine, model: str) -> BulkResult:
    if line.status != "failed":
        return BulkResult(model, line.status, note=line.note)
    if line.error is None:
        raise UnknownFormError("the error of a failed item is missing")
    return BulkResult(model, line.status, line.error.code, line.error.detail)
