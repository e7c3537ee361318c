"""``GuardedTransport``: an httpx transport with checked addresses and a deadline.

The caller of the transport decides which addresses a host may have.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import httpcore
import httpx

from app.errors import EgressRefused
from app.infra.egress.addresses import Address, parse_url

__all__ = ["Addresses", "GuardedTransport", "said"]

Addresses = Callable[[str, int, float | None], Sequence[Address]]
"""Resolves host, port and timeout in seconds to the allowed addresses; raises if there are none."""

_IDENTITY: Final = {"", "identity"}


class GuardedTransport(httpx.HTTPTransport):
    """httpx's transport over checked connections, with a limit for the response.

    Args:
        addresses: resolves a host to its allowed addresses.
        tls: verifies certificates.
        max_bytes: the largest body of a response; None for no limit.
        deadline: seconds for a request, from connecting to the last byte; None for no limit.
        pace: bytes a second, headers and body alike, that extend the deadline; None for a fixed
            one.
    """

    def __init__(
        self,
        addresses: Addresses,
        tls: ssl.SSLContext,
        *,
        max_bytes: int | None,
        deadline: float | None,
        pace: float | None = None,
    ) -> None:
        super().__init__(verify=tls, trust_env=False)
        # httpx accepts no network backend, so its pool is replaced by an equal one with ours.
        self._pool.close()
        self._pool = httpcore.ConnectionPool(
            ssl_context=tls,
            max_connections=100,
            max_keepalive_connections=20 if deadline is None else 0,
            keepalive_expiry=5.0,
            network_backend=_Network(addresses, deadline, pace),
        )
        self._max_bytes = max_bytes

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        parse_url(str(request.url))
        response = super().handle_request(request)
        if self._max_bytes is None:
            return response
        try:
            if response.headers.get("content-encoding", "").lower() not in _IDENTITY:
                raise EgressRefused("the answer is compressed, although that was not asked for")
            if int(response.headers.get("content-length") or 0) > self._max_bytes:
                raise _too_long(self._max_bytes)
        except ValueError:
            pass  # an invalid length: the bytes are counted as they arrive
        except EgressRefused:
            response.close()
            raise
        assert isinstance(response.stream, httpx.SyncByteStream)
        response.stream = _Capped(response.stream, self._max_bytes)
        return response


class _Capped(httpx.SyncByteStream):
    """A body with a size limit."""

    def __init__(self, stream: httpx.SyncByteStream, most: int) -> None:
        self._stream = stream
        self._most = most

    def __iter__(self) -> Iterator[bytes]:
        seen = 0
        for part in self._stream:
            seen += len(part)
            if seen > self._most:
                raise _too_long(self._most)
            yield part

    def close(self) -> None:
        self._stream.close()


class _Network(httpcore.NetworkBackend):
    """Connects only to checked addresses."""

    def __init__(self, addresses: Addresses, deadline: float | None, pace: float | None) -> None:
        self._addresses = addresses
        self._deadline = deadline
        self._pace = pace
        self._plain = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        end = None if self._deadline is None else time.monotonic() + self._deadline
        try:
            addresses = self._addresses(host, port, _least(timeout, _left(end)))
        except TimeoutError as error:
            raise httpcore.ConnectTimeout(f"{host!r}: {error}") from error
        except OSError as error:
            raise httpcore.ConnectError(f"{host!r} cannot be found: {said(error)}") from error
        stream = self._connect(addresses, port, timeout, end, local_address, socket_options)
        return stream if end is None else _Hurried(stream, end, self._pace)

    def _connect(
        self,
        addresses: Sequence[Address],
        port: int,
        timeout: float | None,
        end: float | None,
        local_address: str | None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None,
    ) -> httpcore.NetworkStream:
        """Connect to the first address that accepts."""
        for place, address in enumerate(addresses, 1):
            try:
                return self._plain.connect_tcp(
                    str(address),
                    port,
                    timeout=_least(timeout, _left(end)),
                    local_address=local_address,
                    socket_options=socket_options,
                )
            except (httpcore.ConnectError, httpcore.ConnectTimeout):
                if place == len(addresses):
                    raise
        raise AssertionError("there is at least one address")


class _Hurried(httpcore.NetworkStream):
    """A connection that ends at its deadline; with a pace, received bytes extend the deadline."""

    def __init__(self, stream: httpcore.NetworkStream, end: float, pace: float | None) -> None:
        self._stream = stream
        self._end = end
        self._pace = pace

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        left = self._require(httpcore.ReadTimeout)
        read = self._stream.read(max_bytes, timeout=_least(timeout, left))
        if self._pace is not None:
            self._end += len(read) / self._pace
        return read

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        left = self._require(httpcore.WriteTimeout)
        self._stream.write(buffer, timeout=_least(timeout, left))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.NetworkStream:
        left = self._require(httpcore.ConnectTimeout)
        secured = self._stream.start_tls(ssl_context, server_hostname, _least(timeout, left))
        return _Hurried(secured, self._end, self._pace)

    def get_extra_info(self, info: str) -> object:
        return self._stream.get_extra_info(info)

    def _require(self, late: type[httpcore.TimeoutException]) -> float:
        left = self._end - time.monotonic()
        if left <= 0:
            slow = "" if self._pace is None else f": {self._pace:g} bytes a second should come"
            raise late(f"the request took too long altogether{slow}")
        return left


def _left(end: float | None) -> float | None:
    return None if end is None else max(0.001, end - time.monotonic())


def _least(one: float | None, other: float | None) -> float | None:
    return min((t for t in (one, other) if t is not None), default=None)


def said(error: OSError) -> str:
    """The system's message of an error, without its number."""
    return error.strerror or str(error)


def _too_long(most: int) -> EgressRefused:
    return EgressRefused(f"the answer is longer than {most:,} bytes")
