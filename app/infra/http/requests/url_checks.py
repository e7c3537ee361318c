"""``UrlChecker``: check the URLs in requests before anything else.

Resolving a host waits for a name server that the client chose. A request that waits here holds no
connection slot, no database connection and none of the request threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Depends, Request
from fastapi.concurrency import run_in_threadpool

from app.infra.egress.client import Egress
from app.infra.errors import Unavailable
from app.infra.http.openapi import Refuses
from app.infra.http.requests.bodies import BODY_PROBLEMS
from app.infra.http.requests.json_bodies import JsonBody, JsonReader
from app.infra.http.services import services_of
from modelkin.errors import InvalidParameter

__all__ = ["UrlBody", "UrlChecker"]

_MAX_CONCURRENT_CHECKS = 16


if TYPE_CHECKING:
    UrlBody = JsonBody
else:

    class UrlBody:
        """``UrlBody[T]``: a JSON body, whose field ``url`` is checked before it takes a turn."""

        def __class_getitem__(cls, body_type: type[Any]) -> Any:
            reading = Depends(_url_reader(body_type), scope="function")
            return Annotated[JsonBody, reading, Refuses(*BODY_PROBLEMS, InvalidParameter)]


class UrlChecker:
    """Checks URLs, a few at a time.

    Args:
        egress: resolves and checks the hosts.
        timeout: seconds that a check waits for others to finish.
    """

    def __init__(self, egress: Egress, timeout: float) -> None:
        self._egress = egress
        self._seconds = timeout
        self._threads = ThreadPoolExecutor(_MAX_CONCURRENT_CHECKS, thread_name_prefix="url-check")

    async def require(self, url: str | None) -> None:
        """Refuse a URL that cannot be connected to at present; None passes.

        Raises:
            InvalidParameter: the reason.
            Unavailable: too many other URLs are being checked.
        """
        if url is None:
            return
        checking = asyncio.get_running_loop().run_in_executor(
            self._threads, self._egress.check_url, url, "url"
        )
        try:
            async with asyncio.timeout(self._seconds):
                await checking
        except TimeoutError as error:
            raise Unavailable(
                f"the hosts of other URLs have been looked up for {self._seconds:g} seconds"
            ) from error


class _UrlReader(JsonReader):
    """A reader of bodies that refuses a URL in them that cannot be connected to."""

    async def __call__(self, request: Request) -> AsyncIterator[JsonBody[Any]]:
        async with asynccontextmanager(super().__call__)(request) as received:
            body = await run_in_threadpool(received.read)
            await services_of(request)[UrlChecker].require(body.url)
            yield received


@cache
def _url_reader(body_type: type[Any]) -> _UrlReader:
    return _UrlReader(body_type)
