"""The connections of the network transports, each step of which ends with its call.

Each backend comes twice; the generated synchronous transport uses the one without ``Async``.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable

import httpcore

from modelkin.client._transport.deadline import seconds_left

__all__ = ["AsyncPlainBackend", "PlainBackend"]


class AsyncPlainBackend(httpcore.AnyIOBackend):
    """Connects under asyncio; the timeout is of all addresses of a host together."""

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        left = seconds_left(timeout, httpcore.ConnectTimeout)
        return await super().connect_tcp(host, port, left, local_address, socket_options)


class PlainBackend(httpcore.SyncBackend):
    """Connects to the first address of a host that answers.

    The socket module gives each address the whole timeout, and a host may have many.
    """

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise httpcore.ConnectError(str(error)) from error
        failure: Exception = httpcore.ConnectError(f"{host} has no address")
        for address in dict.fromkeys(str(entry[4][0]) for entry in found):
            left = seconds_left(timeout, httpcore.ConnectTimeout)
            try:
                return super().connect_tcp(address, port, left, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
        raise failure
