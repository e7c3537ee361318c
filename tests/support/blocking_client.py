"""``AsyncClient`` with the interface of ``Client``, so that one test covers both."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator
from typing import Any, Self

from modelkin.client import AsyncClient, AsyncListing
from modelkin.client._async.resource import AsyncResource
from tests.support.client_clock import set_async_clock, set_clock

Connect = Callable[..., Any]


class BlockingClient:
    """Runs each coroutine of an asynchronous client to its end.

    Args:
        target: a client, one of its namespaces, or a listing.
        runner: the event loop for all calls of the client.
    """

    def __init__(self, target: Any, runner: asyncio.Runner) -> None:
        self._target = target
        self._runner = runner

    @classmethod
    def connect(cls, runner: asyncio.Runner, *arguments: Any, **options: Any) -> Self:
        """Connect an AsyncClient."""
        return cls(AsyncClient(*arguments, **options), runner)

    def set_clock(self, sleep: Callable[[float], object], jitter: Callable[[], float]) -> Self:
        """Replace the clock of the client; ``sleep`` is a plain function."""
        set_async_clock(self._target, sleep=_awaitable(sleep), jitter=jitter)
        return self

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._target, name)
        if isinstance(found, AsyncResource):
            return BlockingClient(found, self._runner)
        if not callable(found):
            return found
        return lambda *arguments, **options: self._answer(found(*arguments, **options))

    def __iter__(self) -> Iterator[Any]:
        rows = aiter(self._target)
        while True:
            try:
                row = self._runner.run(_await(anext(rows)))
            except StopAsyncIteration:
                return
            yield row

    def __enter__(self) -> Self:
        self._answer(self._target.__aenter__())
        return self

    def __exit__(self, *raised: object) -> None:
        self._answer(self._target.__aexit__(*raised))

    def __repr__(self) -> str:
        return repr(self._target)

    def _answer(self, given: Any) -> Any:
        if isinstance(given, AsyncListing):
            return BlockingClient(given, self._runner)
        return self._runner.run(_await(given)) if inspect.isawaitable(given) else given


def with_pauses(client: Any, pauses: list[float]) -> Any:
    """Either client, with the longest possible pauses, which are appended to a list."""
    if isinstance(client, BlockingClient):
        return client.set_clock(pauses.append, lambda: 1.0)
    return set_clock(client, sleep=pauses.append)


async def _await(given: Any) -> Any:
    return await given


def _awaitable(sleep: Callable[[float], object]) -> Callable[[float], Any]:
    async def wait(seconds: float) -> None:
        sleep(seconds)

    return wait
