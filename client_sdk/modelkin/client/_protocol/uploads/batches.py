"""Bulk uploads: items in chunks, the calls of each chunk, and the counts of results.

Both clients drive an :class:`Upload`. The only I/O here is on the journal's file.
"""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import AsyncIterable, Callable, Iterable, Iterator, Sequence, Sized
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeAlias

import msgspec

from modelkin import wire
from modelkin._validation import check_model_name, check_space_name, check_tags
from modelkin.client._protocol import models, subspaces, supports
from modelkin.client._protocol.calls import requests
from modelkin.client._protocol.calls.call import Call, content_of
from modelkin.client._protocol.calls.decoding import UnknownFormError, decode
from modelkin.client._protocol.calls.flows import Flow
from modelkin.client._protocol.calls.requests import ALWAYS
from modelkin.client._protocol.uploads.journal import Journal
from modelkin.client._transport.messages import Request, Response
from modelkin.client._transport.progress import Count, counting
from modelkin.core.sketching.signature import Signature
from modelkin.core.sketching.sketch import Sketch
from modelkin.core.subspaces.subspace import Subspace
from modelkin.core.support import Support
from modelkin.core.tensor_order import TensorOrder, blinding_of
from modelkin.errors import ApiError, InvalidInput, InvalidParameter, SpaceMismatch
from modelkin.types.models import BulkItem, BulkResult, BulkSummary
from modelkin.types.vocabulary import BulkStatus

__all__ = [
    "AsyncItems",
    "Chunk",
    "Item",
    "Items",
    "Line",
    "Upload",
    "check_count",
    "encode_line",
    "is_heavy",
    "needs_space",
    "uploading",
]

Item: TypeAlias = BulkItem | tuple[str, requests.Content]
"""A model of a bulk upload: a ``BulkItem``, or a name and a content."""

Items: TypeAlias = Iterable[Item]

AsyncItems: TypeAlias = Iterable[Item] | AsyncIterable[Item]

MAX_BATCH_SIZE: Final = 10_000
"""The most lines that a service takes in one request."""

_JSONL: Final = "application/jsonl"

_MAX_CHUNK_BYTES: Final = 4 << 20
"""The most bytes of a request, which bound the memory of the requests in flight."""
_MAX_LINE_BYTES: Final = 1 << 19
"""The most bytes of an item in a line: services take 1 MiB, and base64 adds a third."""
_MAX_INDEX_BYTES: Final = 1 << 23
"""The most bytes of a line's indices, compressed or not: services decode at most twice as many."""
_HEAVY_K: Final = 50_000
"""The number of indices whose encoding blocks an event loop for too long."""
_MAX_FAILURES: Final = 1000
_ITEM_REFUSALS: Final = frozenset({409, 413, 422})
"""Statuses that concern one model, so that the upload goes on."""


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
    alone: BulkItem | None


@dataclass(frozen=True, slots=True)
class Chunk:
    """Lines of one request."""

    lines: tuple[Line, ...]

    @property
    def names(self) -> set[str]:
        """The names of the chunk's models."""
        return {line.model for line in self.lines}


class Upload:
    """The state of one ``put_many``: waiting lines, chunks in flight, and counts of results.

    Args:
        space: the space that receives the models.
        batch_size: the most lines of a chunk, 1 to 10,000.
        total: the number of items; None if it is not known.
        journal: the journal of the models that the service acknowledged to earlier runs.
        on_result: a function that is called with the result of each item.
        report: a function that is called with the items done and ``total``.
    """

    def __init__(
        self,
        space: str,
        *,
        batch_size: int,
        total: int | None,
        journal: Journal | None,
        on_result: Callable[[BulkResult], object] | None,
        report: Count | None,
    ) -> None:
        self.space = check_space_name(space)
        self._batch_size = check_count("batch_size", batch_size, MAX_BATCH_SIZE)
        self._total = total
        self._journal = journal
        self._on_result = on_result
        self._report = report
        self._waiting: list[Line] = []
        self._size = 0
        self._in_flight: set[str] = set()
        self._counts: Counter[str] = Counter()
        self._failures: list[BulkResult] = []
        self._note: str | None = None

    def add(self, line: Line | BulkResult) -> list[Chunk]:
        """Adds a line or a failure of :func:`encode_line`; returns the chunks that it completes."""
        if isinstance(line, BulkResult):
            self._count([line])
            return []
        if self._journal is not None and self._journal.has(line.model, line.fingerprint):
            self._count([BulkResult(line.model, "skipped")])
            return []
        if line.alone is not None:
            return [*self.rest(), Chunk((line,))]
        complete = []
        if self._size + len(line.data) > _MAX_CHUNK_BYTES:
            complete = self.rest()
        self._waiting.append(line)
        self._size += len(line.data)
        return complete if len(self._waiting) < self._batch_size else [*complete, *self.rest()]

    def rest(self) -> list[Chunk]:
        """The waiting lines, as a chunk."""
        lines, self._waiting, self._size = tuple(self._waiting), [], 0
        return [Chunk(lines)] if lines else []

    def may_start(self, chunk: Chunk) -> bool:
        """Whether no model of a chunk is in flight, so that the later of two items stands."""
        return self._in_flight.isdisjoint(chunk.names)

    def start(self, chunk: Chunk) -> Flow[tuple[BulkResult, ...]]:
        """Marks a chunk as in flight; returns the calls that send it."""
        self._in_flight |= chunk.names
        alone = chunk.lines[0].alone
        return _batch(self.space, chunk) if alone is None else _alone(self.space, alone)

    def settle(self, chunk: Chunk, results: tuple[BulkResult, ...]) -> None:
        """Records the results of a chunk, in the journal first."""
        self._in_flight -= chunk.names
        if self._journal is not None:
            self._journal.add(
                (line.model, line.fingerprint)
                for line, result in zip(chunk.lines, results, strict=True)
                if result.status != "failed"
            )
        self._count(results)

    @property
    def summary(self) -> BulkSummary:
        """The results so far."""
        statuses = ("created", "replaced", "unchanged", "skipped", "failed")
        counts = {status: self._counts[status] for status in statuses}
        return BulkSummary(**counts, failures=tuple(self._failures), note=self._note)

    def _count(self, results: tuple[BulkResult, ...] | list[BulkResult]) -> None:
        for result in results:
            self._counts[result.status] += 1
            self._note = self._note or result.note
            if result.status == "failed" and len(self._failures) < _MAX_FAILURES:
                self._failures.append(result)
            if self._on_result is not None:
                self._on_result(result)
        if self._report is not None:
            self._report(self._counts.total(), self._total)


def put_batch(space: str, lines: bytes, names: Sequence[str]) -> Call[tuple[BulkResult, ...]]:
    """Stores many models at once; ``lines`` belong to ``names``."""
    headers = {"Accept": _JSONL, "Content-Type": _JSONL}
    path = f"{requests.space_path(space)}/batch"
    # Each line is stored as by a PUT: the same lines again change nothing.
    request = Request("POST", path, (), headers, lines, idempotent=True)
    return Call(request, lambda r: _read_results(r, names))


@contextmanager
def uploading(
    space: str,
    items: Any,
    *,
    batch_size: int,
    progress: Count | bool,
    journal: Journal | None,
    on_result: Callable[[BulkResult], object] | None,
) -> Iterator[Upload]:
    """Yield an upload of the items, and close its journal at the end."""
    with ExitStack() as stack:
        if journal is not None:
            stack.enter_context(journal)
        yield Upload(
            space,
            batch_size=batch_size,
            total=len(items) if isinstance(items, Sized) else None,
            journal=journal,
            on_result=on_result,
            report=stack.enter_context(counting(progress, space)),
        )


def check_count(name: str, value: Any, limit: int) -> int:
    """Check a count from 1 to ``limit``, and return it.

    Raises:
        InvalidParameter: the value is no such count.
    """
    if type(value) is not int or not 1 <= value <= limit:
        raise InvalidParameter(f"{name} must be 1 to {limit:,}, not {value!r}", field=name)
    return value


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


def _batch(space: str, chunk: Chunk) -> Flow[tuple[BulkResult, ...]]:
    data = b"".join(line.data for line in chunk.lines)
    results: tuple[BulkResult, ...]
    results = yield put_batch(space, data, [line.model for line in chunk.lines])
    return results


def _alone(space: str, item: BulkItem) -> Flow[tuple[BulkResult, ...]]:
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
            put = supports.put_signature(
                space, item.model, item.content, item.tags, requests.ALWAYS
            )
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
        if error.status not in _ITEM_REFUSALS:
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
    return Line(model, sent, data, None)
