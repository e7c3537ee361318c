"""``ShortReads``: a few threads of their own for requests that read a row or two.

Such a read computes nearly all of its time, and one thread computes at a time: many would fight for
the interpreter, and each would take longer. The hand-over is a queue and a callback of the event
loop; that of anyio takes as long as the read.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context, copy_context
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from anyio import to_thread

__all__ = ["ShortReads", "is_short_read", "short_read"]

Endpoint = TypeVar("Endpoint", bound=Callable[..., object])
T = TypeVar("T")

_TIMEOUT_S = 0.02
"""Many times what a short read takes: who waits for so long waits for one that is stuck."""
_MARK = "__modelkin_short_read__"
"""The attribute of an endpoint that :func:`short_read` sets."""


def short_read(endpoint: Endpoint) -> Endpoint:
    """Mark an endpoint that reads a row or two, and computes next to nothing.

    It has threads that requests of other kinds do not take, so it cannot use ``from_thread``.
    """
    setattr(endpoint, _MARK, True)
    return endpoint


def is_short_read(endpoint: Callable[..., object]) -> bool:
    """Whether an endpoint is marked."""
    return getattr(endpoint, _MARK, False)


class ShortReads:
    """Threads that call functions, first come, first served.

    A call that no thread has begun in time is one of anyio's: where the database is slow or busy,
    reads wait for it in as many threads as other requests do.

    Args:
        threads: started with the first call, ended with this object.
        timeout: seconds that a call waits for one of them.
    """

    def __init__(self, threads: int, timeout: float = _TIMEOUT_S) -> None:
        self._queue: SimpleQueue[_Call[Any] | None] = SimpleQueue()
        self._threads = threads
        self._timeout = timeout
        self._started = False

    async def call(self, function: Callable[[], T]) -> T:
        """What a function returns or raises, called in a thread."""
        if not self._started:
            self._start()
        loop = asyncio.get_running_loop()
        call = _Call(function, loop)
        late = loop.call_later(self._timeout, call.give_up)
        self._queue.put(call)
        try:
            outcome = await call.outcome
        finally:
            late.cancel()
        if outcome is None:
            return await to_thread.run_sync(function)
        return outcome()

    def _start(self) -> None:
        self._started = True
        for _ in range(self._threads):
            threading.Thread(
                target=_work, args=(self._queue,), name="short-reads", daemon=True
            ).start()
        weakref.finalize(self, _end, self._queue, self._threads)


class _Call(Generic[T]):
    """A call that a thread takes, or that is given up before."""

    def __init__(self, function: Callable[[], T], loop: asyncio.AbstractEventLoop) -> None:
        self._function = function
        self._loop = loop
        self._context: Context = copy_context()
        self._free = [True]
        """Empty once it is taken or given up: only one pops it."""
        self.outcome: asyncio.Future[Callable[[], T] | None] = loop.create_future()
        """Returns or raises what the function did; None if it was given up."""

    def carry_out(self) -> None:
        """Call it, in this thread, unless it was given up."""
        if not self._take():
            return
        try:
            result = self._context.run(self._function)
            outcome = _returning(result)
        except BaseException as error:
            outcome = _raising(error)
        with suppress(RuntimeError):  # the loop is closed: nothing waits for it
            self._loop.call_soon_threadsafe(self._set, outcome)

    def give_up(self) -> None:
        """Leave it to others, unless a thread has begun it."""
        if self._take():
            self._set(None)

    def _take(self) -> bool:
        try:
            return self._free.pop()
        except IndexError:
            return False

    def _set(self, outcome: Callable[[], T] | None) -> None:
        if not self.outcome.done():
            self.outcome.set_result(outcome)


def _returning(result: T) -> Callable[[], T]:
    return lambda: result


def _raising(error: BaseException) -> Callable[[], Any]:
    def raise_it() -> Any:
        raise error

    return raise_it


def _work(queue: SimpleQueue[_Call[Any] | None]) -> None:
    while (call := queue.get()) is not None:
        call.carry_out()
        del call  # with what it returned, while this thread waits for the next one


def _end(queue: SimpleQueue[_Call[Any] | None], threads: int) -> None:
    for _ in range(threads):
        queue.put(None)
