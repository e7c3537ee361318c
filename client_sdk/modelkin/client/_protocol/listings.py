"""Listings as sequences that print as tables, and fetch only the rows that are read.

``AsyncListed`` is the half for an asynchronous client, where ``len(...)`` and ``[...]`` cannot wait
for an answer.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from itertools import islice
from typing import Generic, TypeVar, overload

from modelkin._printing import MAX_ROWS, Printed, Table, listed_rows
from modelkin.errors import InvalidParameter, ModelkinError
from modelkin.types.paging import Rows

__all__ = ["AsyncListed", "Listed", "check_limit"]

T = TypeVar("T")


class AsyncListed(Generic[T]):
    """The part of an asynchronous listing that does not await.

    Args:
        source: a function that starts to read the rows.
        row: the rows' type.
    """

    def __init__(self, source: Callable[[], AsyncIterator[T]], row: type[T]) -> None:
        self._source = source
        self._row = row

    def __repr__(self) -> str:
        name = self._row.__name__
        return f"<AsyncListing of {name}: `async for` reads it, or `await listing.read()`>"

    def _rows(self) -> AsyncIterator[T]:
        return self._source()


class Listed(Printed, Generic[T]):
    """A listing as a sequence, which keeps the rows that it has read.

    Args:
        source: a function that starts to read the rows.
        row: the rows' type.
    """

    def __init__(self, source: Callable[[], Iterator[T]], row: type[T]) -> None:
        self._source = source
        self._row = row
        self._reader: Iterator[T] | None = None
        self._cache: list[T] = []
        self._is_whole = False

    def __len__(self) -> int:
        return len(self._first_rows(None))

    def __bool__(self) -> bool:
        return bool(self._first_rows(1))

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Rows[T]: ...
    def __getitem__(self, index: int | slice) -> T | Rows[T]:
        """The row of this number, or the rows of a slice; only the pages needed are read."""
        if isinstance(index, slice):
            ends = [index.start or 0, -1 if index.stop is None else index.stop]
            needed = None if min(ends) < 0 or (index.step or 1) < 0 else index.stop
            return Rows(tuple(self._first_rows(needed)[index]), self._row)
        return self._first_rows(None if index < 0 else index + 1)[index]

    def _rows(self) -> Iterator[T]:
        # Decided at the first row: `list` asks for the length after it has made the iterator.
        yield from self._cache if self._is_whole else self._source()

    def _first_rows(self, count: int | None) -> list[T]:
        """The first rows, at least ``count`` if there are so many; None for all."""
        if self._reader is None:
            self._reader = self._source()
        missing = None if count is None else max(count - len(self._cache), 0)
        try:
            for row in islice(self._reader, missing):
                self._cache.append(row)
        except Exception:  # it has ended: the next one asks again, and does not find no rows
            self._reader, self._cache = None, []
            raise
        self._is_whole = self._is_whole or count is None or len(self._cache) < count
        return self._cache

    def _table(self) -> Table:
        title = f"Listing of {self._row.__name__}"
        try:
            rows = self._first_rows(MAX_ROWS + 1)
        except ModelkinError as error:
            return Table(f"{title}, which could not be read", notes=(("error", str(error)),))
        more = len(rows) - MAX_ROWS if self._is_whole else None
        if self._is_whole:
            title += f", {len(rows):,} items"
        return listed_rows(title, self._row, rows, more)


def check_limit(limit: int | None) -> None:
    """Raise :class:`InvalidParameter` unless a listing can be read up to this limit."""
    if limit is not None and (type(limit) is not int or limit < 1):
        raise InvalidParameter(f"limit must be 1 or more, or None, not {limit!r}", field="limit")
