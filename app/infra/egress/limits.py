"""How long a caller waits for a server: until a moment, or for so many seconds in all."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

import httpcore

__all__ = ["Deadline", "Limit", "Patience"]

_Late = type[httpcore.TimeoutException]


class Limit(Protocol):
    """A limit on the waits of one connection, or of several."""

    def waiting(self, late: _Late) -> AbstractContextManager[float]:
        """A block that waits for a server; its value is the seconds that it may take.

        Raises:
            httpcore.TimeoutException: no time is left; ``late`` is its class.
        """

    def received(self, size: int) -> None:
        """Note that so many bytes have arrived."""


class Deadline:
    """A moment at which a connection ends, however much arrives.

    Args:
        seconds: the seconds until then.
    """

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    @contextmanager
    def waiting(self, late: _Late) -> Iterator[float]:
        left = self._end - time.monotonic()
        if left <= 0:
            raise late("the request took too long altogether")
        yield left

    def received(self, size: int) -> None:
        """Bytes do not move the moment."""


class Patience:
    """The seconds that a server may keep its caller waiting, over all connections together.

    What arrives at a fair pace is no wait: its bytes earn time back, up to the whole. The time
    between two waits does not count. It is for one thread.

    Args:
        seconds: the whole.
        pace: the bytes that earn a second.
    """

    def __init__(self, seconds: float, pace: float) -> None:
        self.left = seconds
        self._whole = seconds
        self._pace = pace

    @contextmanager
    def waiting(self, late: _Late) -> Iterator[float]:
        if self.left <= 0:
            raise late(
                f"it kept its caller waiting for more than {self._whole:g} s in all, and sent less "
                f"than {self._pace:g} bytes a second"
            )
        began = time.monotonic()
        try:
            yield self.left
        finally:
            self.left -= time.monotonic() - began

    def received(self, size: int) -> None:
        self.earn(size / self._pace)

    def earn(self, seconds: float) -> None:
        """Give time back."""
        self.left = min(self._whole, self.left + seconds)
