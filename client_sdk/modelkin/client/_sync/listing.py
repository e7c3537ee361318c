"""Listings: rows that are fetched page by page as they are read, and a table of them.

It never fetches anything itself: the clients hand it the rows.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any, Generic, Self, TypeVar

from modelkin.types.paging import table

__all__ = ["AsyncListing", "Listing"]

T = TypeVar("T")


class Listing(Iterator[T], Generic[T]):
    """An iterator over the rows of a listing; each page is fetched when its first row is read.

    Args:
        rows: the rows.
        row: their type, whose fields are the columns of a table.
    """

    def __init__(self, rows: Iterator[T], row: type[T]) -> None:
        self._rows = rows
        self._row = row

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        return next(self._rows)

    def to_pandas(self) -> Any:
        """A ``pandas.DataFrame`` of the rows not read yet, their fields as columns.

        Raises:
            MissingExtra: pandas is not installed.
        """
        return table(self, self._row)


class AsyncListing(AsyncIterator[T], Generic[T]):
    """:class:`Listing` for ``async for``.

    Args:
        rows: the rows.
        row: their type, whose fields are the columns of a table.
    """

    def __init__(self, rows: AsyncIterator[T], row: type[T]) -> None:
        self._rows = rows
        self._row = row

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        return await anext(self._rows)

    async def to_pandas(self) -> Any:
        """A ``pandas.DataFrame`` of the rows not read yet, their fields as columns.

        Raises:
            MissingExtra: pandas is not installed.
        """
        return table([row async for row in self], self._row)
