"""``AsyncResource``: the base of the client's namespaces."""

from __future__ import annotations

from functools import partial
from typing import TypeVar

from modelkin.client._async.connection import AsyncConnection
from modelkin.client._async.listing import AsyncListing
from modelkin.client._protocol.calls.call import Call
from modelkin.types.paging import Page

__all__ = ["AsyncResource"]

T = TypeVar("T")


class AsyncResource:
    """The operations on one kind of resource.

    Args:
        connection: the client's connection.
    """

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    def _listing(self, call: Call[Page[T]], row: type[T]) -> AsyncListing[T]:
        return AsyncListing(partial(self._connection.rows, call), row)
