"""Replace the clock of a client: the only place that uses its private attributes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from modelkin.client import AsyncClient, Client
from modelkin.client._transport.concurrency import AsyncClock, Clock

__all__ = ["set_async_clock", "set_clock"]

Sleep = Callable[[float], object]


def no_sleep(seconds: float) -> None:
    """Return at once."""


def longest() -> float:
    """Draw the longest pause."""
    return 1.0


def set_clock(
    client: Client, *, sleep: Sleep = no_sleep, jitter: Callable[[], float] = longest
) -> Client:
    """The client with pauses that go to ``sleep``; ``jitter`` draws their length."""
    client._connection.clock = Clock(sleep, jitter)
    return client


async def no_async_sleep(seconds: float) -> None:
    """Return at once."""


def set_async_clock(
    client: AsyncClient,
    *,
    sleep: Callable[[float], Awaitable[object]] = no_async_sleep,
    jitter: Callable[[], float] = longest,
) -> AsyncClient:
    """:func:`set_clock` of the asynchronous client."""
    client._connection.clock = AsyncClock(sleep, jitter)
    return client
