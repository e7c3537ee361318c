"""The lines of a bulk upload: items as a service reads them, and chunks of lines."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import AsyncIterable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from modelkin import wire
from modelkin._validation import check_model_name, check_tags
from modelkin.client._protocol.calls import requests
from modelkin.core.sketching.signature import Signature
from modelkin.core.sketching.sketch import Sketch
from modelkin.core.subspaces.subspace import Subspace
from modelkin.core.support import Support
from modelkin.core.tensor_order import TensorOrder
from modelkin.errors import InvalidInput, InvalidParameter, SpaceMismatch
from modelkin.types.fingerprints.stored import FingerprintItem
from modelkin.types.models import BulkItem, BulkResult

__all__ = [
    "AsyncItems",
    "Chunk",
    "Item",
    "Items",
    "Line",
    "encode_line",
    "is_heavy",
    "needs_space",
]

Item: TypeAlias = BulkItem | tuple[str, requests.Content]
"""A model of a bulk upload: a ``BulkItem``, or a name and a content."""

Items: TypeAlias = Iterable[Item]

AsyncItems: TypeAlias = Iterable[Item] | AsyncIterable[Item]

_MAX_LINE_BYTES: Final = 1 << 19
"""The most bytes of an item in a line: services take 1 MiB, and base64 adds a third."""
_MAX_INDEX_BYTES: Final = 1 << 23
"""The most bytes of a line's indices, compressed or not: services decode at most twice as many."""
_HEAVY_K: Final = 50_000
"""The number of indices whose encoding blocks an event loop for too long."""


@dataclass(frozen=True, slots=True)
class Line:
    """An encoded item.

    Attributes:
        model: the model's name.
        fingerprint: a fingerprint of the model's content, tags, attributes and sketch.
        data: the line; empty for an item that is put alone.
        alone: an item that is put alone; None for an item that fits in a line.
    """

    model: str
    fingerprint: str
    data: bytes
    alone: BulkItem | FingerprintItem | None = None


@dataclass(frozen=True, slots=True)
class Chunk:
    """Lines of one request."""

    lines: tuple[Line, ...]

    @property
    def names(self) -> set[str]:
        """The names of the chunk's models."""
        return {line.model for line in self.lines}


def is_heavy(given: Item) -> bool:
    """Whether the encoding of an item would block an event loop for too long."""
    item = _item(given)
    return isinstance(item.content, Support) and item.content.k > _HEAVY_K


def needs_space(given: Item) -> bool:
    """Whether an item states an origin that must be compared with the space's."""
    content = _item(given).content
    origin = None if isinstance(content, Subspace) else content.origin
    return origin is not None and (origin.layout is not None or origin.blinding is not None)


def encode_line(given: Item, tensors: TensorOrder | None = None) -> Line | BulkResult:
    """Encode an item as a line, or return its failure.

    Args:
        given: the item.
        tensors: the space's tensors, whose order a support is put in; None if no item needs them.

    Raises:
        InvalidParameter: the item is neither a ``BulkItem`` nor a name and a content.
    """
    item = _item(given)
    try:
        if tensors is not None and not isinstance(item.content, Subspace):
            item = replace(item, content=tensors.in_order(item.content))
        return _line(item)
    except (InvalidInput, SpaceMismatch) as error:
        return BulkResult(str(item.model), "failed", error.code, str(error))


def _item(given: Any) -> BulkItem:
    item = given
    if isinstance(given, tuple) and len(given) == 2:
        item = BulkItem(*given)
    if not isinstance(item, BulkItem):
        raise requests.wrong_type("items", "BulkItem objects or pairs of name and support", given)
    if not isinstance(item.content, requests.Content):
        expected = "a Support, a Signature or a Subspace"
        raise requests.wrong_type("content", expected, item.content)
    if item.sketch is not None and not isinstance(item.sketch, Sketch):
        raise requests.wrong_type("sketch", "a Sketch", item.sketch)
    return item


def _line(item: BulkItem) -> Line:
    model = check_model_name(item.model)
    if item.sketch is not None and not isinstance(item.content, Signature):
        raise InvalidParameter(
            "a sketch goes beside a signature; of a support the service makes it", field="sketch"
        )
    tags = None if item.tags is None else check_tags(item.tags)
    item = replace(item, model=model, tags=tags)
    fields: dict[str, Any] = {"model": model}
    fits = True
    if isinstance(item.content, Subspace):
        digest = item.content.digest
        fields["subspace"] = base64.b64encode(item.content.to_bytes()).decode()
    elif isinstance(item.content, Support):
        digest = item.content.digest
        fits = item.content.indices.nbytes <= _MAX_INDEX_BYTES
        fields["support"] = base64.b64encode(wire.encode_support(item.content)).decode()
    else:
        digest = hashlib.sha256(wire.encode_signature(item.content)).hexdigest()
        fields["signature"] = wire.signature_to_json(item.content)
    fields |= requests.origin_fields(item.content)
    said: dict[str, Any] = {}
    if item.sketch is not None:
        said["sketch"] = base64.b64encode(wire.encode_sketch(item.sketch)).decode()
    if tags is not None:
        said["tags"] = tags
    if item.attributes is not None:
        said["attributes"] = dict(item.attributes)
    if item.source is not None:
        said["source"] = item.source
    if item.base_model is not None:
        said["base_model"] = check_model_name(item.base_model, field="base_model")
    sent = hashlib.sha256(digest.encode() + requests.json_bytes(said)).hexdigest()[:32]
    data = requests.json_bytes(fields | said) + b"\n"
    if not fits or len(data) > _MAX_LINE_BYTES:
        return Line(model, sent, b"", item)
    return Line(model, sent, data)
