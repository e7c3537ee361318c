"""``AsyncConnection``: sends calls to one service, retries them and reads their answers."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Final, TypeVar

import httpx

from modelkin._processes import PerProcess
from modelkin.client._async.network import AsyncNetwork
from modelkin.client._protocol.calls import requests
from modelkin.client._protocol.calls.call import Call, next_page
from modelkin.client._protocol.calls.exchange import Exchange, ExchangeSettings, Outcome
from modelkin.client._transport.bounds import AnswerBody
from modelkin.client._transport.concurrency import AsyncClock, async_offload
from modelkin.client._transport.config import Config
from modelkin.client._transport.deadline import Deadline
from modelkin.client._transport.embedded import EmbeddedService
from modelkin.client._transport.messages import Request, Response
from modelkin.client._transport.progress import Progress, async_pieces
from modelkin.errors import ClientClosed, InvalidParameter
from modelkin.types.paging import Page

__all__ = ["AsyncConnection"]

T = TypeVar("T")

_LARGE_ANSWER_BYTES: Final = 1 << 18
"""The size of an answer from which reading takes milliseconds, too long for an event loop."""


class AsyncConnection:
    """A connection to one service, which the resources of a client share.

    Args:
        config: the client's configuration.
        transport: a transport that carries the requests, in place of the network.
        service: an embedded service; the first call waits for its start, and ``close`` ends it.
    """

    def __init__(
        self,
        config: Config,
        transport: httpx.AsyncBaseTransport | None,
        service: EmbeddedService | None = None,
    ) -> None:
        self.url = config.url
        self.max_answer_bytes = config.max_answer_bytes
        self._config = config
        self._service = service
        self.clock = AsyncClock()
        self._settings = ExchangeSettings.of(config)
        self._closed = False
        self._transport = transport
        self._process = os.getpid()
        self._http = PerProcess(self._open)
        self._http.get()

    async def run(
        self, call: Call[T], report: Progress | None = None, seconds: float | None = None
    ) -> T:
        """Sends a call, with retries, and returns its result.

        Args:
            call: the request, and how its answer is read.
            report: a function that is called with the bytes sent and the bytes in all.
            seconds: the most seconds that the call may take, where these are fewer than usual.
        """
        await self.start()
        deadline = self._config.deadline(seconds)
        exchange = Exchange(call, self._settings, deadline)
        while True:
            outcome = await self._send(call.request, deadline, report)
            pause = exchange.after(outcome, self.clock.jitter())
            if pause is None:
                break
            await self.clock.sleep(pause)
        if exchange.size < _LARGE_ANSWER_BYTES:
            return exchange.result()
        return await async_offload(exchange.result)

    async def rows(self, call: Call[Page[T]]) -> AsyncIterator[T]:
        """The rows of a listing; each page is fetched when its first row is read."""
        following: Call[Page[T]] | None = call
        while following is not None:
            page = await self.run(following)
            for row in page.items:
                yield row
            following = next_page(following, page, self.url)

    async def is_ready(self) -> bool:
        """Whether the service can answer, from one attempt."""
        return self._settings.is_ready(await self.attempt(requests.ready()))

    async def attempt(self, request: Request) -> Outcome:
        """Sends a request once, and returns its answer or the error of its transport."""
        await self.start()
        return await self._send(request, self._config.deadline())

    async def sleep(self, seconds: float) -> None:
        """Waits for some seconds."""
        await self.clock.sleep(seconds)

    async def close(self) -> None:
        """Closes the connections; calls from now on raise :class:`ClientClosed`."""
        was_closed, self._closed = self._closed, True
        http = self._http.made()
        if http is not None:
            await http.aclose()
        if self._service is not None and not was_closed:
            await async_offload(self._service.close)

    async def start(self) -> None:
        """Waits for the service, if it is an embedded one.

        Raises:
            ConnectionFailed: the service could not start.
        """
        self.require_open()
        if self._service is not None:
            await async_offload(self._service.wait)

    @property
    def is_closed(self) -> bool:
        """Whether :meth:`close` was called."""
        return self._closed

    def require_open(self) -> None:
        """Raises :class:`ClientClosed` after :meth:`close`."""
        if self._closed:
            raise ClientClosed(self.url)

    def _open(self) -> httpx.AsyncClient:
        """Return the connections of this process.

        Raises:
            InvalidParameter: the transport that carries them was given in another process.
        """
        config, transport = self._config, self._transport
        if transport is not None and os.getpid() != self._process:
            raise InvalidParameter(
                f"the transport of this client was given in process {self._process}, whose "
                f"connections it may hold: make a client in each process",
                field="transport",
            )
        return httpx.AsyncClient(
            base_url=config.url,
            headers=config.headers,
            transport=transport or AsyncNetwork(config.tls, config.proxy),
            trust_env=False,  # the transport knows the proxy
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),  # none: they would pile up
        )

    async def _send(
        self, request: Request, deadline: Deadline, report: Progress | None = None
    ) -> Outcome:
        content = request.content if report is None else async_pieces(request.content, report)
        try:
            async with self._http.get().stream(
                request.method,
                request.target,
                headers=request.sent_headers,
                content=content,
                extensions={"timeout": deadline.timeouts()},
            ) as received:
                return await self._read(request, received, deadline)
        except (httpx.RequestError, RuntimeError) as error:
            self.require_open()  # another task has closed it
            if isinstance(error, RuntimeError):
                raise
            return error

    async def _read(
        self, request: Request, received: httpx.Response, deadline: Deadline
    ) -> Response:
        """Reads an answer within its bounds; leaving before its end closes the connection."""
        status, headers = received.status_code, dict(received.headers)
        body = AnswerBody(request, self.url, status, headers, self.max_answer_bytes)
        async for piece in received.aiter_bytes():
            body.add(piece)
            if deadline.left <= 0:
                raise httpx.ReadTimeout("the time of the call is over")
        return Response(status, headers, body.content)
