"""URLs that requests bring: whether the service may connect to them, seen to before all else.

Resolving a host waits for whoever answers for its name, whom somebody else chose. Whoever waits
here holds no turn, no connection and none of the threads that carry out requests.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from fastapi import Request

from app.bootstrap import Resources
from app.errors import Unavailable

__all__ = ["UrlChecker", "require_reachable"]

_AT_ONCE = 16


class UrlChecker:
    """Checks URLs, a few at a time.

    Args:
        resources: whose way out it is.
    """

    def __init__(self, resources: Resources) -> None:
        self._egress = resources.egress
        self._seconds = resources.settings.database_timeout
        self._threads = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="reach")

    async def require(self, url: str) -> None:
        """Refuse a URL that could not be connected to as things are now.

        Raises:
            InvalidParameter: why it could not.
            Unavailable: others are waiting for their hosts to be found.
        """
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


async def require_reachable(request: Request, url: str | None) -> None:
    """The URL of a request may be connected to, if it brings one."""
    if url is not None:
        reach: UrlChecker = request.app.state.reach
        await reach.require(url)
