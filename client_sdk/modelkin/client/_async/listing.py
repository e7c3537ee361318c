"""``AsyncListing``: rows that are fetched page by page as they are read, and a table of them."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable
from typing import TYPE_CHECKING, TypeVar

from modelkin.client._protocol.listings import AsyncListed, check_limit
from modelkin.types.paging import Rows, table

if TYPE_CHECKING:
    import pandas

__all__ = ["AsyncListing"]

T = TypeVar("T")


class AsyncListing(AsyncListed[T], AsyncIterable[T]):
    """The rows of a listing; each page is fetched when its first row is read.

    Each iteration starts at the first row again.

    Args:
        source: a function that starts to read the rows.
        row: the rows' type, whose fields are the columns of a table.
    """

    def __init__(self, source: Callable[[], AsyncIterator[T]], row: type[T]) -> None:
        super().__init__(source, row)

    def __aiter__(self) -> AsyncIterator[T]:
        return self._rows()

    async def read(self, limit: int | None = None) -> Rows[T]:
        """Reads rows into a sequence, which has a length and slices and prints as a table.

        Args:
            limit: the most rows to read, from the first one; None for all.
        """
        check_limit(limit)
        read: list[T] = []
        async for row in self:
            read.append(row)
            if len(read) == limit:
                break
        return Rows(tuple(read), self._row)

    async def to_pandas(self) -> pandas.DataFrame:
        """A ``pandas.DataFrame`` of the rows, with their fields as columns.

        Raises:
            MissingExtra: pandas is not installed.
        """
        return table([row async for row in self], self._row)
