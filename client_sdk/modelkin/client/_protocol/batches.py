"""Many models in few requests: what goes into which, what came of each, what is on its way.

Both clients drive an :class:`Upload`: it cuts the items into chunks and keeps the account; a script
says which calls a chunk takes. It sends nothing itself; the journal's file is all it touches.
"""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Sized
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from modelkin import wire
from modelkin._validation import check_model_name, check_space_name, check_tags
from modelkin.client._protocol import requests, spaces
from modelkin.client._protocol.flows import Script
from modelkin.client._protocol.journal import Journal
from modelkin.client._protocol.sketches import put_sketch
from modelkin.client._transport.progress import Count, counting
from modelkin.core.sketching.signature import Signature
from modelkin.core.sketching.sketch import Sketch
from modelkin.core.support import Support
from modelkin.errors import ApiError, InvalidInput, InvalidParameter
from modelkin.types.models import BulkItem, BulkResult, BulkSummary
from modelkin.types.paging import UNCHANGED

__all__ = [
    "Chunk",
    "Given",
    "Line",
    "Upload",
    "check_count",
    "encoded",
    "is_heavy",
    "uploading",
]

Given: TypeAlias = BulkItem | tuple[str, Support | Signature]
"""An item as callers give it."""

MAX_BATCH: Final = 10_000
"""Lines that a service takes in one request."""

_CHUNK_BYTES: Final = 4 << 20
"""Bytes of a request: what is under way at once stays small, whatever the items are."""
_LINE_BYTES: Final = 1 << 19
"""A longer line goes by itself, as bytes: services take lines of 1 MiB, and base64 adds a third."""
_INDEX_BYTES: Final = 1 << 23
"""Bytes of indices of a line, however short it is: services decode no more than twice as many."""
_HEAVY: Final = 50_000
"""Indices whose encoding holds up an event loop."""
_MOST_FAILURES: Final = 1000
_REFUSED_ITEM: Final = frozenset({409, 413, 422})
"""Statuses that say something of one model, and nothing of those that follow."""


@dataclass(frozen=True, slots=True)
class Line:
    """An item, ready to be sent.

    Attributes:
        model: its name.
        fingerprint: of all that is said of the model.
        data: the line; empty where it is too long for one.
        alone: the item itself where it is.
    """

    model: str
    fingerprint: str
    data: bytes
    alone: BulkItem | None


@dataclass(frozen=True, slots=True)
class Chunk:
    """Lines that travel together."""

    lines: tuple[Line, ...]

    @property
    def names(self) -> set[str]:
        return {line.model for line in self.lines}


class Upload:
    """The account of one ``put_many``.

    Args:
        space: where the models go.
        batch_size: the most lines of a chunk, 1 to 10,000.
        total: how many items there will be, if that is known.
        journal: of what earlier runs had acknowledged.
        on_result: called with what became of each item.
        report: called with the items done and ``total``.
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
        self._batch_size = check_count("batch_size", batch_size, MAX_BATCH)
        self._total = total
        self._journal = journal
        self._on_result = on_result
        self._report = report
        self._waiting: list[Line] = []
        self._size = 0
        self._under_way: set[str] = set()
        self._counts: Counter[str] = Counter()
        self._failures: list[BulkResult] = []

    def add(self, line: Line | BulkResult) -> list[Chunk]:
        """Take what :func:`encoded` made of an item; the chunks that are complete with it."""
        if isinstance(line, BulkResult):
            self._account([line])
            return []
        if self._journal is not None and self._journal.has(line.model, line.fingerprint):
            self._account([BulkResult(line.model, "skipped")])
            return []
        if line.alone is not None:
            return [*self.rest(), Chunk((line,))]
        complete = []
        if self._size + len(line.data) > _CHUNK_BYTES:
            complete = self.rest()
        self._waiting.append(line)
        self._size += len(line.data)
        return complete if len(self._waiting) < self._batch_size else [*complete, *self.rest()]

    def rest(self) -> list[Chunk]:
        """What waits for a chunk to become full, as one."""
        lines, self._waiting, self._size = tuple(self._waiting), [], 0
        return [Chunk(lines)] if lines else []

    def may_start(self, chunk: Chunk) -> bool:
        """Whether no model of it is on its way already: of two contents the later one stands."""
        return self._under_way.isdisjoint(chunk.names)

    def start(self, chunk: Chunk) -> Script[tuple[BulkResult, ...]]:
        """The chunk is on its way; the calls that bring it there."""
        self._under_way |= chunk.names
        alone = chunk.lines[0].alone
        return _batch(self.space, chunk) if alone is None else _alone(self.space, alone)

    def settle(self, chunk: Chunk, results: tuple[BulkResult, ...]) -> None:
        """The chunk has arrived: note what was acknowledged, and tell."""
        self._under_way -= chunk.names
        if self._journal is not None:
            self._journal.add(
                (line.model, line.fingerprint)
                for line, result in zip(chunk.lines, results, strict=True)
                if result.status != "failed"
            )
        self._account(results)

    @property
    def summary(self) -> BulkSummary:
        """What has become of the items so far."""
        statuses = ("created", "replaced", "unchanged", "skipped", "failed")
        counts = {status: self._counts[status] for status in statuses}
        return BulkSummary(**counts, failures=tuple(self._failures))

    def _account(self, results: tuple[BulkResult, ...] | list[BulkResult]) -> None:
        for result in results:
            self._counts[result.status] += 1
            if result.status == "failed" and len(self._failures) < _MOST_FAILURES:
                self._failures.append(result)
            if self._on_result is not None:
                self._on_result(result)
        if self._report is not None:
            self._report(self._counts.total(), self._total)


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
    """An account of these items, for as long as they are being put; then the journal is closed."""
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


def check_count(name: str, value: Any, most: int) -> int:
    """A number of things, 1 to ``most``."""
    if type(value) is not int or not 1 <= value <= most:
        raise InvalidParameter(f"{name} must be 1 to {most:,}, not {value!r}", field=name)
    return value


def is_heavy(given: Given) -> bool:
    """Whether to encode it takes so long that an event loop should not wait for it."""
    item = _item(given)
    return isinstance(item.content, Support) and item.content.k > _HEAVY


def encoded(given: Given) -> Line | BulkResult:
    """An item as a line, or the failure that it is.

    Raises:
        InvalidParameter: it is neither a ``BulkItem`` nor a name and a support or signature.
    """
    item = _item(given)
    try:
        return _line(item)
    except InvalidInput as error:
        return BulkResult(str(item.model), "failed", error.code, str(error))


def _batch(space: str, chunk: Chunk) -> Script[tuple[BulkResult, ...]]:
    data = b"".join(line.data for line in chunk.lines)
    results: tuple[BulkResult, ...]
    results = yield spaces.put_batch(space, data, [line.model for line in chunk.lines])
    return results


def _alone(space: str, item: BulkItem) -> Script[tuple[BulkResult, ...]]:
    """A model by a PUT of its own, whose answer does not tell replaced from unchanged."""
    try:
        before = None
        try:
            before = (yield spaces.model(space, item.model)).version
        except ApiError as error:
            if error.problem_code != "model_not_found":
                raise
        if isinstance(item.content, Support):
            put = spaces.put_support(space, item.model, item.content, item.tags, None)
        else:
            put = spaces.put_signature(space, item.model, item.content, item.tags, None)
        stored = yield put
        if item.sketch is not None:
            stored = yield put_sketch(space, item.model, item.sketch, None)
        if item.attributes is not None and dict(item.attributes) != stored.attributes:
            described = spaces.update_model(
                space, item.model, None, item.attributes, UNCHANGED, UNCHANGED, None
            )
            # These attributes twice are these attributes once.
            stored = yield replace(described, request=replace(described.request, idempotent=True))
    except ApiError as error:
        if error.status not in _REFUSED_ITEM:
            raise
        return (BulkResult(item.model, "failed", error.problem_code, error.detail),)
    if before is None:
        return (BulkResult(item.model, "created"),)
    return (BulkResult(item.model, "unchanged" if stored.version == before else "replaced"),)


def _item(given: Any) -> BulkItem:
    item = given
    if isinstance(given, tuple) and len(given) == 2:
        item = BulkItem(*given)
    if not isinstance(item, BulkItem):
        raise requests.wrong_type("items", "BulkItem objects or pairs of name and support", given)
    if not isinstance(item.content, Support | Signature):
        raise requests.wrong_type("content", "a Support or a Signature", item.content)
    if item.sketch is not None and not isinstance(item.sketch, Sketch):
        raise requests.wrong_type("sketch", "a Sketch", item.sketch)
    return item


def _line(item: BulkItem) -> Line:
    model = check_model_name(item.model)
    if item.sketch is not None and isinstance(item.content, Support):
        raise InvalidParameter(
            "a sketch goes beside a signature; of a support the service makes it", field="sketch"
        )
    tags = None if item.tags is None else check_tags(item.tags)
    item = replace(item, model=model, tags=tags)
    fields: dict[str, Any] = {"model": model}
    fits = True
    if isinstance(item.content, Support):
        digest = item.content.digest
        fits = item.content.indices.nbytes <= _INDEX_BYTES
        fields["support"] = base64.b64encode(wire.encode_support(item.content)).decode()
    else:
        digest = hashlib.sha256(wire.encode_signature(item.content)).hexdigest()
        fields["signature"] = wire.signature_to_json(item.content)
    said: dict[str, Any] = {}
    if item.sketch is not None:
        said["sketch"] = base64.b64encode(wire.encode_sketch(item.sketch)).decode()
    if tags is not None:
        said["tags"] = tags
    if item.attributes is not None:
        said["attributes"] = dict(item.attributes)
    sent = hashlib.sha256(digest.encode() + requests.json_bytes(said)).hexdigest()[:32]
    data = requests.json_bytes(fields | said) + b"\n"
    if not fits or len(data) > _LINE_BYTES:
        return Line(model, sent, b"", item)
    return Line(model, sent, data, None)
