"""``AsyncNetwork``: the transport of a client, whose requests end with their calls.

The pool that httpx makes for itself waits a whole timeout for each byte of a head.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import httpcore
import httpx

from modelkin.client._transport.backends import AsyncPlainBackend
from modelkin.client._transport.deadline import seconds_left

__all__ = ["AsyncNetwork"]

_SLICE_BYTES: Final = 1 << 16
"""The bytes of a body between two looks at the clock."""


class AsyncNetwork(httpx.AsyncBaseTransport):
    """Carries requests whose timeouts may be :class:`modelkin.client._transport.deadline.Until`.

    Args:
        tls: the context that verifies certificates.
        proxy: the proxy that carries the requests; None for none.
    """

    def __init__(self, tls: ssl.SSLContext, proxy: httpx.Proxy | None) -> None:
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=tls,
            proxy=None if proxy is None else _proxy(proxy),
            max_connections=100,
            max_keepalive_connections=20,
            keepalive_expiry=5.0,
            network_backend=_AsyncTimedBackend(),
        )

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Sends a request, and returns the head of its answer."""
        assert isinstance(request.stream, httpx.AsyncByteStream)
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
            found = await self._pool.handle_async_request(asked)
        return httpx.Response(
            status_code=found.status,
            headers=found.headers,
            stream=_AsyncBody(found),
            extensions=found.extensions,
        )

    async def aclose(self) -> None:
        """Closes the connections."""
        await self._pool.aclose()


class _AsyncBody(httpx.AsyncByteStream):
    """The body of an answer."""

    def __init__(self, answer: httpcore.Response) -> None:
        self._answer = answer

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with _as_httpx():
            async for part in self._answer.aiter_stream():
                yield part

    async def aclose(self) -> None:
        await self._answer.aclose()


class _AsyncTimedBackend(httpcore.AsyncNetworkBackend):
    """Connects within what is left of a call."""

    def __init__(self) -> None:
        self._plain = AsyncPlainBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        return _AsyncTimedStream(
            await self._plain.connect_tcp(host, port, timeout, local_address, socket_options)
        )


class _AsyncTimedStream(httpcore.AsyncNetworkStream):
    """A connection whose every step ends with the call."""

    def __init__(self, stream: httpcore.AsyncNetworkStream) -> None:
        self._stream = stream

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        left = seconds_left(timeout, httpcore.ReadTimeout)
        return await self._stream.read(max_bytes, left)

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        for start in range(0, len(buffer), _SLICE_BYTES):
            left = seconds_left(timeout, httpcore.WriteTimeout)
            await self._stream.write(buffer[start : start + _SLICE_BYTES], left)

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.AsyncNetworkStream:
        left = seconds_left(timeout, httpcore.ConnectTimeout)
        return _AsyncTimedStream(await self._stream.start_tls(ssl_context, server_hostname, left))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


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
        kind: type[httpx.TransportError] = getattr(httpx, type(error).__name__)
        raise kind(str(error)) from error


def _proxy(proxy: httpx.Proxy) -> httpcore.Proxy:
    return httpcore.Proxy(str(proxy.url), proxy.raw_auth, proxy.headers.raw, proxy.ssl_context)
