"""Calls about fingerprints, which belong to names of models and to no space."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import AsyncIterable, Iterable
from dataclasses import replace
from datetime import datetime
from typing import Any, Final, TypeAlias

from modelkin import wire
from modelkin._validation import check_base_models, check_model_name, quote_whole_name
from modelkin.client._protocol.calls import requests
from modelkin.client._protocol.calls.call import Call, content_of, read_nothing
from modelkin.client._protocol.calls.decoding import decode, reader
from modelkin.client._protocol.calls.flows import Flow
from modelkin.client._protocol.calls.requests import ALWAYS, Condition
from modelkin.client._protocol.uploads.batch_calls import ITEM_REFUSALS, put_lines
from modelkin.client._protocol.uploads.lines import Chunk, Line
from modelkin.client._transport.messages import Response
from modelkin.core.fingerprints.fingerprint import Fingerprint
from modelkin.errors import ApiError, InvalidInput, InvalidParameter
from modelkin.types.fingerprints.stored import FingerprintItem, StoredFingerprint
from modelkin.types.models import BulkResult
from modelkin.types.paging import Page

__all__ = [
    "AsyncItems",
    "Items",
    "delete",
    "encode_line",
    "get",
    "info",
    "list_all",
    "put",
    "put_chunk",
]

_PATH: Final = "/v1/fingerprints"
_MAX_LINE_BYTES: Final = 1 << 20
"""The most bytes of a line that a service takes by default."""

Item: TypeAlias = tuple[str, Fingerprint] | FingerprintItem
"""A fingerprint of a bulk upload."""
Items: TypeAlias = Iterable[Item]
AsyncItems: TypeAlias = Iterable[Item] | AsyncIterable[Item]


def put(item: FingerprintItem, condition: Condition = ALWAYS) -> Call[StoredFingerprint]:
    """Stores a fingerprint."""
    params = [
        (parameter, str(value))
        for name, value in _facts(item).items()
        for parameter, value in (
            [("base_model", each) for each in value] if name == "base_models" else [(name, value)]
        )
    ]
    request = requests.write(
        "PUT",
        _path(item.model),
        _bytes_of(item),
        wire.FINGERPRINT,
        params,
        condition.if_match,
        create_only=condition.create_only,
    )
    return Call(request, _read)


def info(model: str) -> Call[StoredFingerprint]:
    """Reads what is known of a fingerprint."""
    return Call(requests.get(_path(model)), _read)


def get(model: str) -> Call[Fingerprint]:
    """Reads a fingerprint."""
    request = requests.get(_path(model), accept=wire.FINGERPRINT)
    return Call(request, lambda r: wire.decode_fingerprint(content_of(r, wire.FINGERPRINT)))


def list_all(prefix: str, stated_by: str | None) -> Call[Page[StoredFingerprint]]:
    """Lists fingerprints by name."""
    params = list(requests.PAGE_SIZE)
    if prefix:
        params.append(("prefix", prefix))
    if stated_by is not None:
        params.append(("stated_by", stated_by))
    return Call(requests.get(_PATH, params), reader(Page[StoredFingerprint]))


def delete(model: str, if_match: str | None) -> Call[None]:
    """Removes a fingerprint."""
    return Call(requests.write("DELETE", _path(model), if_match=if_match), read_nothing)


def encode_line(given: Any) -> Line | BulkResult:
    """Encode an item of ``put_many`` as a line, or return its failure.

    Raises:
        InvalidParameter: it is neither a ``FingerprintItem`` nor a name and a fingerprint.
    """
    item = given
    if isinstance(given, tuple) and len(given) == 2:
        item = FingerprintItem(*given)
    if not isinstance(item, FingerprintItem):
        raise requests.wrong_type(
            "items", "pairs of a name and a Fingerprint, or FingerprintItems", given
        )
    encoded = _bytes_of(item)
    try:
        model, facts = check_model_name(item.model), _facts(item)
    except InvalidInput as error:
        return BulkResult(str(item.model), "failed", error.code, str(error))
    said = item.fingerprint.digest.encode() + requests.json_bytes(facts)
    sent = hashlib.sha256(said).hexdigest()[:32]
    body = {"model": model, "fingerprint": base64.b64encode(encoded).decode(), **facts}
    data = requests.json_bytes(body) + b"\n"
    return Line(model, sent, b"", item) if len(data) > _MAX_LINE_BYTES else Line(model, sent, data)


def put_chunk(chunk: Chunk) -> Flow[tuple[BulkResult, ...]]:
    """Store the fingerprints of a chunk in one request."""
    alone = chunk.lines[0].alone
    if isinstance(alone, FingerprintItem):
        return _put_alone(alone)
    return put_lines(_PATH, chunk)


def _put_alone(item: FingerprintItem) -> Flow[tuple[BulkResult, ...]]:
    """Store a fingerprint that is too long for a line. Its old version tells what has changed."""
    before: StoredFingerprint | None = None
    try:
        try:
            before = yield info(item.model)
        except ApiError as error:
            if error.problem_code != "fingerprint_not_found":
                raise
        stored: StoredFingerprint = yield put(item)
    except ApiError as error:
        if error.status not in ITEM_REFUSALS:
            raise
        return (BulkResult(item.model, "failed", error.problem_code, error.detail),)
    if before is None:
        return (BulkResult(item.model, "created"),)
    return (BulkResult(item.model, "unchanged" if stored.etag == before.etag else "replaced"),)


def _path(model: str) -> str:
    return f"{_PATH}/{quote_whole_name(check_model_name(model))}"


def _read(response: Response) -> StoredFingerprint:
    return replace(decode(response, StoredFingerprint), etag=requests.etag_of(response))


def _bytes_of(item: FingerprintItem) -> bytes:
    if not isinstance(item.fingerprint, Fingerprint):
        raise requests.wrong_type("fingerprint", "a modelkin.Fingerprint", item.fingerprint)
    return wire.encode_fingerprint(item.fingerprint)


def _facts(item: FingerprintItem) -> dict[str, Any]:
    """What is said of a fingerprint, by the names of fields; what is not said is left out."""
    moment = item.published_at
    if isinstance(moment, datetime) and moment.tzinfo is None:
        raise InvalidParameter("published_at needs an offset from UTC", field="published_at")
    said = {
        "base_models": list(check_base_models(item.base_models)) or None,
        "base_relation": item.base_relation,
        "license": item.license,
        "published_at": None if moment is None else moment.isoformat(),
        "file_bytes": item.file_bytes,
    }
    return {name: value for name, value in said.items() if value is not None}
