"""``AsyncResource``: the base of the client's namespaces."""

from __future__ import annotations

from modelkin.client._async.connection import AsyncConnection

__all__ = ["AsyncResource"]


class AsyncResource:
    """The operations on one kind of resource.

    Args:
        connection: of the client.
    """

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection
