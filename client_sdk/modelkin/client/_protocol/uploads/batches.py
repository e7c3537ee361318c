"""Bulk uploads: items in chunks, and the counts of results.

Both clients drive an :class:`Upload`. The only I/O here is on the journal's file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sized
from contextlib import ExitStack, contextmanager
from typing import Any, Final

from modelkin.client._protocol.calls.flows import Flow
from modelkin.client._protocol.uploads.journal import Journal
from modelkin.client._protocol.uploads.lines import Chunk, Line
from modelkin.client._transport.progress import Count, counting
from modelkin.errors import InvalidParameter
from modelkin.types.models import BulkResult, BulkSummary

__all__ = ["PutChunk", "Upload", "check_count", "uploading"]

MAX_BATCH_SIZE: Final = 10_000
"""The most lines that a service takes in one request."""

_MAX_CHUNK_BYTES: Final = 4 << 20
"""The most bytes of a request, which bound the memory of the requests in flight."""
_MAX_FAILURES: Final = 1000

PutChunk = Callable[[Chunk], Flow[tuple[BulkResult, ...]]]
"""A function that makes the calls which send a chunk."""


class Upload:
    """The state of one ``put_many``: waiting lines, chunks in flight, and counts of results.

    Args:
        put: makes the calls that send a chunk.
        batch_size: the most lines of a chunk, 1 to 10,000.
        total: the number of items; None if it is not known.
        journal: the journal of the models that the service acknowledged to earlier runs.
        on_result: a function that is called with the result of each item.
        report: a function that is called with the items done and ``total``.
    """

    def __init__(
        self,
        put: PutChunk,
        *,
        batch_size: int,
        total: int | None,
        journal: Journal | None,
        on_result: Callable[[BulkResult], object] | None,
        report: Count | None,
    ) -> None:
        self._put = put
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
        """Adds a line or a failure of ``encode_line``; returns the chunks that it completes."""
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
        return self._put(chunk)

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


@contextmanager
def uploading(
    put: PutChunk,
    label: str,
    items: Any,
    *,
    batch_size: int,
    progress: Count | bool,
    journal: Journal | None,
    on_result: Callable[[BulkResult], object] | None,
) -> Iterator[Upload]:
    """Yield an upload of the items, and close its journal at the end.

    Args:
        put: as of :class:`Upload`.
        label: the words before the progress.
        items: what is uploaded.
        batch_size: as of :class:`Upload`.
        progress: as of ``put_many``.
        journal: as of :class:`Upload`.
        on_result: as of :class:`Upload`.
    """
    with ExitStack() as stack:
        if journal is not None:
            stack.callback(journal.close)
        yield Upload(
            put,
            batch_size=batch_size,
            total=len(items) if isinstance(items, Sized) else None,
            journal=journal,
            on_result=on_result,
            report=stack.enter_context(counting(progress, label)),
        )


def check_count(name: str, value: Any, limit: int) -> int:
    """Check a count from 1 to ``limit``, and return it.

    Raises:
        InvalidParameter: the value is no such count.
    """
    if type(value) is not int or not 1 <= value <= limit:
        raise InvalidParameter(f"{name} must be 1 to {limit:,}, not {value!r}", field=name)
    return value
