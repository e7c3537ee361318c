"""URLs that requests bring: whether the service may connect to them, seen to before all else.

Resolving a host waits for whoever answers for its name, whom somebody else chose. Whoever waits
here holds no turn, no connection and none of the threads that carry out requests.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from app.errors import Unavailable
from app.infra.egress.client import Egress

__all__ = ["UrlChecker"]

_AT_ONCE = 16


class UrlChecker:
    """Checks URLs, a few at a time.

    Args:
        egress: the way out to them.
        timeout: seconds that a check waits for others.
    """

    def __init__(self, egress: Egress, timeout: float) -> None:
        self._egress = egress
        self._seconds = timeout
        self._threads = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="reach")

    async def require(self, url: str | None) -> None:
        """Refuse a URL that could not be connected to as things are now; None passes.

        Raises:
            InvalidParameter: why it could not.
            Unavailable: others are waiting for their hosts to be found.
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
