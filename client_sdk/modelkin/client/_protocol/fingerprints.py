"""Calls about fingerprints, which belong to names of models and to no space."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

from modelkin import wire
from modelkin._validation import check_base_models, check_model_name, quote_whole_name
from modelkin.client._protocol.calls import requests
from modelkin.client._protocol.calls.call import Call, content_of, read_nothing
from modelkin.client._protocol.calls.decoding import decode, reader
from modelkin.client._protocol.calls.requests import ALWAYS, Condition
from modelkin.client._protocol.uploads.batch_calls import put_lines
from modelkin.client._transport.messages import Response
from modelkin.core.fingerprints.fingerprint import Fingerprint
from modelkin.errors import ApiError, InvalidParameter
from modelkin.types.fingerprints.stored import FingerprintItem, StoredFingerprint
from modelkin.types.models import BulkResult, BulkSummary
from modelkin.types.paging import Page

__all__ = ["Batch", "BatchOfOne", "delete", "get", "info", "item_of", "list_all", "put"]

_PATH: Final = "/v1/fingerprints"
_MAX_LINE_BYTES: Final = 1 << 20
"""The most bytes of a line that a service takes by default."""
_MAX_BATCH_BYTES: Final = 4 << 20
_MAX_LINES: Final = 500
_MAX_FAILURES: Final = 1000
_ITEM_REFUSALS: Final = frozenset({409, 413, 422})
"""Statuses that concern one model, so that the upload goes on."""


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


def item_of(given: Any) -> FingerprintItem:
    """An item of ``put_many``: itself, or of a pair of a name and a fingerprint."""
    if isinstance(given, tuple) and len(given) == 2:
        given = FingerprintItem(*given)
    if not isinstance(given, FingerprintItem):
        raise requests.wrong_type(
            "items", "pairs of a name and a Fingerprint, or FingerprintItems", given
        )
    return given


@dataclass(frozen=True)
class BatchOfOne:
    """A fingerprint that is too long for a line."""

    item: FingerprintItem

    def call(self) -> Call[tuple[BulkResult, ...]]:
        """The request of its own."""
        sent = put(self.item)
        return Call(sent.request, self._results)

    def _results(self, response: Response) -> tuple[BulkResult, ...]:
        stored = _read(response)
        return (BulkResult(stored.model, "created" if response.status == 201 else "replaced"),)

    def refused(self, error: ApiError) -> tuple[BulkResult, ...]:
        """The result of a refusal that concerns this one; else the error is raised."""
        if error.status not in _ITEM_REFUSALS:
            raise error
        return (BulkResult(self.item.model, "failed", error.problem_code, error.detail),)


@dataclass
class Batch:
    """The lines of the next request of ``put_many``, and the results so far."""

    results: list[BulkResult] = field(default_factory=list)
    _lines: list[bytes] = field(default_factory=list)
    _names: list[str] = field(default_factory=list)

    def add(self, given: Any) -> Iterator[Call[tuple[BulkResult, ...]] | BatchOfOne]:
        """Add an item; the requests that are to be sent before more are added."""
        item = item_of(given)
        line = _line(item)
        if len(line) > _MAX_LINE_BYTES:
            yield from self.rest()
            yield BatchOfOne(item)
            return
        if len(self._lines) == _MAX_LINES or sum(map(len, self._lines)) + len(line) > (
            _MAX_BATCH_BYTES
        ):
            yield from self.rest()
        self._lines.append(line)
        self._names.append(item.model)

    def rest(self) -> Iterator[Call[tuple[BulkResult, ...]]]:
        """The request of the lines that are left."""
        if self._lines:
            call = put_lines(_PATH, b"".join(self._lines), list(self._names))
            self._lines.clear()
            self._names.clear()
            yield call

    @property
    def summary(self) -> BulkSummary:
        """The results so far, counted."""
        counts = Counter[str](result.status for result in self.results)
        failures = [result for result in self.results if result.status == "failed"]
        return BulkSummary(
            created=counts["created"],
            replaced=counts["replaced"],
            unchanged=counts["unchanged"],
            skipped=0,
            failed=counts["failed"],
            failures=tuple(failures[:_MAX_FAILURES]),
        )


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


def _line(item: FingerprintItem) -> bytes:
    data = base64.b64encode(_bytes_of(item)).decode()
    body = {"model": check_model_name(item.model), "fingerprint": data, **_facts(item)}
    return requests.json_bytes(body) + b"\n"
