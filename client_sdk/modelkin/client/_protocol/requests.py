"""The parts that requests are built from: paths, queries, bodies and headers, checked first.

Whatever a caller gives wrongly is an error here, before anything is sent. It never does I/O.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from modelkin import wire
from modelkin._validation import check_model_name, check_space_name, check_tags, quote_model
from modelkin.client._transport.messages import Request
from modelkin.core.sketching.signature import Signature
from modelkin.core.support import Support
from modelkin.errors import InvalidParameter
from modelkin.wire import JSON

__all__ = [
    "SPACES",
    "ask",
    "get",
    "json_bytes",
    "model_path",
    "new_tags",
    "post",
    "put",
    "space_path",
    "tag_params",
    "write",
    "wrong_type",
]

SPACES = "/v1/spaces"


def get(path: str, params: Iterable[tuple[str, str]] = (), accept: str = JSON) -> Request:
    return Request("GET", path, tuple(params), {"Accept": accept}, idempotent=True)


def post(path: str, body: Any, accept: str = JSON) -> Request:
    """A POST that asks or ensures and may therefore be sent again, which a bare POST may not."""
    headers = {"Accept": accept, "Content-Type": JSON}
    return Request("POST", path, (), headers, json_bytes(body), idempotent=True)


def write(
    method: str,
    path: str,
    content: bytes = b"",
    content_type: str | None = None,
    params: Iterable[tuple[str, str]] = (),
    if_match: str | None = None,
) -> Request:
    """A PUT, PATCH or DELETE, on condition of an entity tag where one is given."""
    headers = {"Accept": JSON}
    if content_type is not None:
        headers["Content-Type"] = content_type
    if if_match is not None:
        headers["If-Match"] = check_etag(if_match)
    # A conditional write is not sent twice: the second would meet the first one's effect and fail.
    idempotent = method in {"PUT", "DELETE"} and if_match is None
    return Request(method, path, tuple(params), headers, content, idempotent)


def put(
    space: str,
    collection: str,
    model: str,
    value: Support | Signature,
    tags: Iterable[str] | None,
    if_match: str | None,
) -> Request:
    """An upload, in the native format of what it is."""
    path = model_path(space, collection, model)
    content_type, content = encoded(value)
    return write("PUT", path, content, content_type, new_tags(tags), if_match)


def ask(path: str, name: str, query: Any, params: list[tuple[str, str]]) -> Request:
    """A question about a stored model by GET, about a support or signature by POST."""
    if isinstance(query, str):
        return get(path, [(name, check_model_name(query, field=name)), *params])
    if not isinstance(query, Support | Signature):
        raise wrong_type(name, "a model's name, a Support or a Signature", query)
    content_type, content = encoded(query)
    headers = {"Accept": JSON, "Content-Type": content_type}
    return Request("POST", path, tuple(params), headers, content, idempotent=True)


def encoded(value: Support | Signature) -> tuple[str, bytes]:
    if isinstance(value, Support):
        return wire.SUPPORT, wire.encode_support(value)
    return wire.SIGNATURE, wire.encode_signature(value)


def space_path(name: str) -> str:
    return f"{SPACES}/{check_space_name(name)}"


def model_path(space: str, collection: str, model: str) -> str:
    return f"{space_path(space)}/{collection}/{quote_model(model)}"


def new_tags(tags: Iterable[str] | None) -> tuple[tuple[str, str], ...]:
    """No tag leaves the tags of a model as they are; one empty tag says that it shall have none."""
    return () if tags is None else tag_params(tags) or (("tag", ""),)


def tag_params(tags: Iterable[str]) -> tuple[tuple[str, str], ...]:
    return tuple(("tag", tag) for tag in check_tags(tags))


def check_etag(etag: Any) -> str:
    if isinstance(etag, str) and etag and etag.isascii() and etag.isprintable():
        return etag
    raise InvalidParameter(
        "if_match must be the etag of a ModelInfo that the service answered for this model alone",
        field="if_match",
    )


def json_bytes(body: Any) -> bytes:
    try:
        return json.dumps(body, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidParameter(f"this cannot be sent as JSON: {error}") from error


def wrong_type(field: str, wanted: str, value: Any) -> InvalidParameter:
    return InvalidParameter(f"{field} must be {wanted}, not {type(value).__name__}", field=field)
