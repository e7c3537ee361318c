"""The parts of the clients that threads and asyncio do differently: pauses, task pools, iteration.

Each part comes twice; the generated synchronous client uses the one without ``Async`` in its name.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Iterable,
)
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, Generic, ParamSpec, TypeVar

__all__ = [
    "AsyncClock",
    "AsyncTaskPool",
    "Clock",
    "TaskPool",
    "async_each",
    "async_offload",
    "each",
    "offload",
]

K = TypeVar("K")
P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Clock:
    """The pauses of a client, which tests replace.

    Attributes:
        sleep: a function that waits for some seconds.
        jitter: a function that draws from 0 to 1, the share of the longest pause.
    """

    sleep: Callable[[float], object] = time.sleep
    jitter: Callable[[], float] = random.random


@dataclass(frozen=True, slots=True)
class AsyncClock:
    """:class:`Clock` for asyncio."""

    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
    jitter: Callable[[], float] = random.random


def offload(function: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
    """Calls a function."""
    return function(*arguments, **options)


async def async_offload(function: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
    """Calls a function in a thread, so that the event loop goes on."""
    return await asyncio.to_thread(function, *arguments, **options)


def each(items: Iterable[T]) -> Generator[T, None, None]:
    """The items one by one."""
    yield from items


async def async_each(items: Iterable[T] | AsyncIterable[T]) -> AsyncGenerator[T, None]:
    """The items one by one, of a plain or asynchronous iterable."""
    if isinstance(items, AsyncIterable):
        async for item in items:
            yield item
    else:
        for item in items:
            yield item


class TaskPool(Generic[K, T]):
    """Calls in flight in threads, each with a key.

    Args:
        size: the number of calls at a time.
    """

    def __init__(self, size: int) -> None:
        self._threads = ThreadPoolExecutor(size, "modelkin-client")
        self._tasks: dict[Future[T], K] = {}

    def __len__(self) -> int:
        return len(self._tasks)

    def start(self, key: K, function: Callable[..., T], *arguments: Any) -> None:
        """Starts a call."""
        self._tasks[self._threads.submit(function, *arguments)] = key

    def next_result(self) -> tuple[K, T]:
        """Waits for a call to end; raises what it raised."""
        task = next(iter(wait(self._tasks, return_when=FIRST_COMPLETED).done))
        result = task.result()
        return self._tasks.pop(task), result

    def close(self) -> list[tuple[K, T]]:
        """Waits for the calls in flight; returns the results of those that succeeded."""
        self._threads.shutdown()
        return [
            (key, task.result()) for task, key in self._tasks.items() if task.exception() is None
        ]


class AsyncTaskPool(Generic[K, T]):
    """:class:`TaskPool` of asyncio tasks.

    Args:
        size: calls at a time, which the caller keeps to.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._tasks: dict[asyncio.Task[T], K] = {}

    def __len__(self) -> int:
        return len(self._tasks)

    def start(
        self, key: K, function: Callable[..., Coroutine[Any, Any, T]], *arguments: Any
    ) -> None:
        """Starts a call."""
        self._tasks[asyncio.create_task(function(*arguments))] = key

    async def next_result(self) -> tuple[K, T]:
        """Waits for a call to end; raises what it raised."""
        done, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        task = next(iter(done))
        result = task.result()
        return self._tasks.pop(task), result

    async def close(self) -> list[tuple[K, T]]:
        """Cancels the calls in flight; returns the results of those that had succeeded."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        return [
            (key, task.result())
            for task, key in self._tasks.items()
            if not task.cancelled() and task.exception() is None
        ]
