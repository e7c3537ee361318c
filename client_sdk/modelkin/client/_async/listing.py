"""``AsyncListing``: rows that are fetched page by page as they are read, and a table of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Generic, Self, TypeVar

from modelkin.types.paging import table

if TYPE_CHECKING:
    import pandas

__all__ = ["AsyncListing"]

T = TypeVar("T")


class AsyncListing(AsyncIterator[T], Generic[T]):
    """An iterator over the rows of a listing; each page is fetched when its first row is read.

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

    async def to_pandas(self) -> pandas.DataFrame:
        """A ``pandas.DataFrame`` of the rows not read yet, with their fields as columns.

        Raises:
            MissingExtra: pandas is not installed.
        """
        return table([row async for row in self], self._row)
