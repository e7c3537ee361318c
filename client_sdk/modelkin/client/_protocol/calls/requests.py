"""The parts of requests: paths, queries, bodies and headers.

Arguments are checked here, so that a wrong one is an error before anything is sent. Nothing here
does I/O.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from modelkin import wire
from modelkin._validation import check_model_name, check_space_name, check_tags, quote_model
from modelkin.client._transport.messages import Request, Response
from modelkin.core.sketching.signature import Signature
from modelkin.core.subspaces.subspace import Subspace
from modelkin.core.support import Support
from modelkin.errors import InvalidParameter
from modelkin.wire import JSON

__all__ = [
    "ALWAYS",
    "PAGE_SIZE",
    "SPACES",
    "Condition",
    "Content",
    "Query",
    "check_id",
    "encode",
    "get",
    "json_bytes",
    "model_path",
    "new_tags",
    "origin_fields",
    "post",
    "post_once",
    "put",
    "query",
    "ready",
    "send_once",
    "space_path",
    "tag_params",
    "write",
    "wrong_type",
]

SPACES: Final = "/v1/spaces"

PAGE_SIZE: Final = (("limit", "100"),)
"""The parameter for the number of rows in a page of a listing."""

Content: TypeAlias = Support | Signature | Subspace
"""The content that a model is compared by."""
Query: TypeAlias = str | Content
"""The query of a search: the name of a stored model, or a content."""


@dataclass(frozen=True, slots=True)
class Condition:
    """The condition on a model for an upload to be stored.

    Attributes:
        if_match: the entity tag of the version that the upload replaces.
        create_only: whether no model of this name may exist.

    Raises:
        InvalidParameter: both are given, which no model can meet.
    """

    if_match: str | None = None
    create_only: bool = False

    def __post_init__(self) -> None:
        if self.if_match is not None:
            object.__setattr__(self, "if_match", check_etag(self.if_match))
        if self.create_only and self.if_match is not None:
            raise InvalidParameter(
                "create_only stores a new model, if_match replaces one: give one of them",
                field="create_only",
            )


ALWAYS: Final = Condition()

_OF_A_CODING: Final = re.compile(r"[-;](?:gzip|br|zstd|deflate)\"$")
"""The end of an entity tag that a proxy has made of a whole one, when it compressed."""

_ID: Final = re.compile(r"[0-9A-Za-z-]{1,64}")


def ready() -> Request:
    """A request that answers whether the service can serve."""
    return get("/readyz")


def get(path: str, params: Iterable[tuple[str, str]] = (), accept: str = JSON) -> Request:
    """Make a GET."""
    return Request("GET", path, tuple(params), {"Accept": accept}, idempotent=True)


def post(
    path: str, body: Any, accept: str = JSON, params: Iterable[tuple[str, str]] = ()
) -> Request:
    """Make a POST of JSON that may be retried, since a second one changes nothing."""
    headers = {"Accept": accept, "Content-Type": JSON}
    return Request("POST", path, tuple(params), headers, json_bytes(body), idempotent=True)


def post_once(path: str, body: Any = None, params: Iterable[tuple[str, str]] = ()) -> Request:
    """Make a POST with an idempotency key, which has one effect however often it is sent.

    Each attempt is the same request, and gets the answer of the first one that took effect.
    """
    headers = {"Accept": JSON, "Idempotency-Key": uuid.uuid4().hex}
    content = b""
    if body is not None:
        headers["Content-Type"] = JSON
        content = json_bytes(body)
    return Request("POST", path, tuple(params), headers, content, idempotent=True)


def send_once(path: str, body: Any = None) -> Request:
    """Make a POST that is never retried, because a second one would have an effect of its own."""
    if body is None:
        return Request("POST", path, (), {"Accept": JSON})
    headers = {"Accept": JSON, "Content-Type": JSON}
    return Request("POST", path, (), headers, json_bytes(body))


def write(
    method: str,
    path: str,
    content: bytes = b"",
    content_type: str | None = None,
    params: Iterable[tuple[str, str]] = (),
    if_match: str | None = None,
    *,
    create_only: bool = False,
) -> Request:
    """Make a PUT, PATCH or DELETE, perhaps on condition of an entity tag, or of no model."""
    headers = {"Accept": JSON}
    if content_type is not None:
        headers["Content-Type"] = content_type
    if if_match is not None:
        headers["If-Match"] = check_etag(if_match)
    if create_only:
        headers["If-None-Match"] = "*"
    # A conditional write is sent once: a second one would find the first one's effect and fail.
    idempotent = method in {"PUT", "DELETE"} and if_match is None and not create_only
    return Request(method, path, tuple(params), headers, content, idempotent)


def put(
    space: str,
    collection: str,
    model: str,
    value: Content,
    tags: Iterable[str] | None,
    condition: Condition,
) -> Request:
    """Make the upload of a content in its native format."""
    path = model_path(space, collection, model)
    content_type, content = encode(value)
    params = (*new_tags(tags), *origin_fields(value).items())
    return write(
        "PUT",
        path,
        content,
        content_type,
        params,
        condition.if_match,
        create_only=condition.create_only,
    )


def query(path: str, name: str, subject: Any, params: list[tuple[str, str]]) -> Request:
    """Make a search: a GET for a stored model, a POST for a content that is not stored."""
    if isinstance(subject, str):
        return get(path, [(name, check_model_name(subject, field=name)), *params])
    if not isinstance(subject, Content):
        expected = "a model's name, a Support, a Signature or a Subspace"
        raise wrong_type(name, expected, subject)
    content_type, content = encode(subject)
    headers = {"Accept": JSON, "Content-Type": content_type}
    given = (*params, *origin_fields(subject).items())
    return Request("POST", path, given, headers, content, idempotent=True)


def origin_fields(value: Content) -> dict[str, str]:
    """The origin of an upload's or a query's indices, by the names of parameters or fields."""
    origin = None if isinstance(value, Subspace) else value.origin
    fields = dict[str, str]()
    if origin is None:
        return fields
    if origin.importance is not None and origin.importance.is_stated:
        fields["importance"] = origin.importance.kind
        if origin.importance.base is not None:
            fields["base"] = origin.importance.base
    if origin.layout is not None:
        fields["layout"] = origin.layout.digest
    if origin.blinding is not None:
        fields["blinding"] = origin.blinding
    return fields


def encode(value: Content) -> tuple[str, bytes]:
    """The media type and the bytes of a content in its native format."""
    if isinstance(value, Subspace):
        return wire.SUBSPACE, value.to_bytes()
    if isinstance(value, Support):
        return wire.SUPPORT, wire.encode_support(value)
    return wire.SIGNATURE, wire.encode_signature(value)


def check_id(value: Any, field: str) -> str:
    """Check that an id may stand in a path, and return it.

    Raises:
        InvalidParameter: the value is no id.
    """
    if not isinstance(value, str) or not _ID.fullmatch(value):
        raise InvalidParameter(f"{value!r} is not the id of a {field}", field=field)
    return value


def space_path(name: str) -> str:
    """The path of a space."""
    return f"{SPACES}/{check_space_name(name)}"


def model_path(space: str, collection: str, model: str) -> str:
    """The path of a model in one of a space's collections, encoded segment by segment."""
    return f"{space_path(space)}/{collection}/{quote_model(model)}"


def new_tags(tags: Iterable[str] | None) -> tuple[tuple[str, str], ...]:
    """The tags of an upload. None keeps the model's tags; one empty tag removes all."""
    return () if tags is None else tag_params(tags) or (("tag", ""),)


def tag_params(tags: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Tags as parameters of a query."""
    return tuple(("tag", tag) for tag in check_tags(tags))


def check_etag(etag: Any) -> str:
    """Check that an entity tag may stand in a header, and return it as the service made it.

    Raises:
        InvalidParameter: the value is no entity tag.
    """
    if isinstance(etag, str) and etag and etag.isascii() and etag.isprintable():
        return strong_etag(etag)
    raise InvalidParameter(
        "if_match must be the etag of a ModelInfo that the service answered for this model alone",
        field="if_match",
    )


def strong_etag(etag: str) -> str:
    """An entity tag as the service made it, whatever a proxy that compresses has made of it.

    The service's tags are of versions, and strong. nginx and CDNs mark them as weak, which no
    ``If-Match`` matches (RFC 9110, 8.8.1 and 13.1.1); Apache and Caddy append the coding.
    """
    return _OF_A_CODING.sub('"', etag.removeprefix("W/"))


def etag_of(response: Response) -> str | None:
    """The entity tag of an answer; None without one."""
    etag = response.headers.get("etag")
    return None if etag is None else strong_etag(etag)


def json_bytes(body: Any) -> bytes:
    """Encode a body as JSON.

    Raises:
        InvalidParameter: the body has no JSON form.
    """
    try:
        return json.dumps(body, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as error:
        where, reason = _unsendable(body, error)
        raise InvalidParameter(
            f"{where or 'this'} cannot be sent as JSON: {reason}", field=where or None
        ) from error


def _unsendable(body: Any, error: Exception) -> tuple[str, Exception]:
    """The path of the first value that has no JSON form, and why it has none."""
    path = ""
    while isinstance(body, dict | list | tuple) and not isinstance(error, RecursionError):
        parts = body.items() if isinstance(body, dict) else enumerate(body)
        for key, value in parts:
            try:
                json.dumps(value, allow_nan=False)
            except (TypeError, ValueError, RecursionError) as inner:
                step = f"[{key}]" if isinstance(key, int) else f".{key}" if path else str(key)
                path, body, error = path + step, value, inner
                break
        else:
            break  # a key is at fault
    return path, error


def wrong_type(field: str, wanted: str, value: Any) -> InvalidParameter:
    """The error for an argument of another type."""
    return InvalidParameter(f"{field} must be {wanted}, not {type(value).__name__}", field=field)
