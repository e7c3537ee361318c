"""``UrlChecker``: check URLs in requests before anything else.

Resolving a host waits for a name server that the client chose. A request that waits here holds no
connection slot, no database connection and none of the request threads.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from app.errors import Unavailable
from app.infra.egress.client import Egress

__all__ = ["UrlChecker"]

_MAX_CONCURRENT_CHECKS = 16


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
