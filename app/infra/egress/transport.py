"""``GuardedTransport``: an httpx transport with checked addresses and limits of time.

The caller of the transport decides which addresses a host may have.
"""

from __future__ import annotations

import math
import ssl
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Final

import httpcore
import httpx

from app.infra.egress.addresses import Address, parse_url
from app.infra.egress.limits import Limit
from app.infra.errors import EgressRefused

__all__ = ["Addresses", "GuardedTransport", "system_message"]

Addresses = Callable[[str, int, float | None], Sequence[Address]]
"""Resolves host, port and timeout in seconds to the allowed addresses; raises if there are none."""

_IDENTITY: Final = {"", "identity"}


class GuardedTransport(httpx.BaseTransport):
    """A transport over checked connections, with a limit for the response.

    The pool of httpx makes its connections itself, so this transport has another pool.

    Args:
        addresses: a function that resolves a host to its allowed addresses.
        tls: the context that verifies certificates.
        max_bytes: the largest body of a response; None for no limit.
        limit: makes the limit of a connection, or returns that of several; None for no limit.
    """

    def __init__(
        self,
        addresses: Addresses,
        tls: ssl.SSLContext,
        *,
        max_bytes: int | None,
        limit: Callable[[], Limit] | None,
    ) -> None:
        self._pool = httpcore.ConnectionPool(
            ssl_context=tls,
            max_connections=100,
            max_keepalive_connections=20 if limit is None else 0,
            keepalive_expiry=5.0,
            network_backend=_Network(addresses, limit),
        )
        self._max_bytes = max_bytes

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        parse_url(str(request.url))
        assert isinstance(request.stream, httpx.SyncByteStream)
        asked = httpcore.Request(
            method=request.method,
            url=httpcore.URL(
                scheme=request.url.raw_scheme,
                host=request.url.raw_host,
                port=request.url.port,
                target=request.url.raw_path,
            ),
            headers=request.headers.raw,
            content=request.stream,
            extensions=request.extensions,
        )
        with _as_httpx():
            found = self._pool.handle_request(asked)
        response = httpx.Response(
            status_code=found.status,
            headers=found.headers,
            stream=_Body(found, self._max_bytes),
            extensions=found.extensions,
        )
        try:
            _require_readable(response)
            if self._max_bytes is not None:
                _require_short(response, self._max_bytes)
        except (EgressRefused, httpx.RemoteProtocolError):
            response.close()
            raise
        return response

    def close(self) -> None:
        self._pool.close()


class _Body(httpx.SyncByteStream):
    """A body, with a size limit if there is one."""

    def __init__(self, response: httpcore.Response, most: int | None) -> None:
        self._response = response
        self._most = math.inf if most is None else most

    def __iter__(self) -> Iterator[bytes]:
        seen = 0
        with _as_httpx():
            for part in self._response.iter_stream():
                seen += len(part)
                if seen > self._most:
                    raise _too_long(int(self._most))
                yield part

    def close(self) -> None:
        self._response.close()


@contextmanager
def _as_httpx() -> Iterator[None]:
    """Raise errors of httpcore as those of httpx, whose classes have the same names."""
    try:
        yield
    except (
        httpcore.TimeoutException,
        httpcore.NetworkError,
        httpcore.ProtocolError,
        httpcore.ProxyError,
        httpcore.UnsupportedProtocol,
    ) as error:
        error_type: type[httpx.TransportError] = getattr(httpx, type(error).__name__)
        raise error_type(str(error)) from error


class _Network(httpcore.NetworkBackend):
    """Connects only to checked addresses."""

    def __init__(self, addresses: Addresses, limit: Callable[[], Limit] | None) -> None:
        self._addresses = addresses
        self._limit = limit
        self._plain = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        limit = None if self._limit is None else self._limit()
        try:
            with _waiting(limit) as left:
                addresses = self._addresses(host, port, _least(timeout, left))
        except TimeoutError as error:
            raise httpcore.ConnectTimeout(f"{host!r}: {error}") from error
        except OSError as error:
            raise httpcore.ConnectError(
                f"{host!r} cannot be found: {system_message(error)}"
            ) from error
        stream = self._connect(addresses, port, timeout, limit, local_address, socket_options)
        return stream if limit is None else _Limited(stream, limit)

    def _connect(
        self,
        addresses: Sequence[Address],
        port: int,
        timeout: float | None,
        limit: Limit | None,
        local_address: str | None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None,
    ) -> httpcore.NetworkStream:
        """Connect to the first address that accepts."""
        for place, address in enumerate(addresses, 1):
            try:
                with _waiting(limit) as left:
                    return self._plain.connect_tcp(
                        str(address),
                        port,
                        timeout=_least(timeout, left),
                        local_address=local_address,
                        socket_options=socket_options,
                    )
            except (httpcore.ConnectError, httpcore.ConnectTimeout):
                if place == len(addresses):
                    raise
        raise AssertionError("there is at least one address")


class _Limited(httpcore.NetworkStream):
    """A connection whose waits are limited."""

    def __init__(self, stream: httpcore.NetworkStream, limit: Limit) -> None:
        self._stream = stream
        self._limit = limit

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        with self._limit.waiting(httpcore.ReadTimeout) as left:
            read = self._stream.read(max_bytes, timeout=_least(timeout, left))
        self._limit.received(len(read))
        return read

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        with self._limit.waiting(httpcore.WriteTimeout) as left:
            self._stream.write(buffer, timeout=_least(timeout, left))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.NetworkStream:
        with self._limit.waiting(httpcore.ConnectTimeout) as left:
            secured = self._stream.start_tls(ssl_context, server_hostname, _least(timeout, left))
        return _Limited(secured, self._limit)

    def get_extra_info(self, info: str) -> object:
        return self._stream.get_extra_info(info)


def _waiting(limit: Limit | None) -> AbstractContextManager[float | None]:
    """A block that connects; its value is the seconds that it may take."""
    return nullcontext() if limit is None else limit.waiting(httpcore.ConnectTimeout)


def _least(one: float | None, other: float | None) -> float | None:
    return min((t for t in (one, other) if t is not None), default=None)


def system_message(error: OSError) -> str:
    """The system's message of an error, without its number."""
    return error.strerror or str(error)


def _require_readable(response: httpx.Response) -> None:
    """Refuse a redirect whose host cannot be decoded, such as ``xn--0``.

    httpx decodes it even where redirects are not followed, and lets the error of a codec through.
    """
    try:
        _ = httpx.URL(response.headers.get("location", "")).host
    except (httpx.InvalidURL, UnicodeError):
        raise httpx.RemoteProtocolError("Invalid URL in location header") from None


def _require_short(response: httpx.Response, most: int) -> None:
    if response.headers.get("content-encoding", "").lower() not in _IDENTITY:
        raise EgressRefused("the answer is compressed, although that was not asked for")
    try:
        if int(response.headers.get("content-length") or 0) > most:
            raise _too_long(most)
    except ValueError:
        pass  # an invalid length: the bytes are counted as they arrive


def _too_long(most: int) -> EgressRefused:
    return EgressRefused(f"the answer is longer than {most:,} bytes")
