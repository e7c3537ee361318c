"""Scripts: calls one after another, where what comes next depends on what came before.

A script is a generator of calls; it is sent the result of each, or thrown its refusal, and returns
what all of them come to. It does no I/O: whoever performs it sends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeAlias, TypeVar

from modelkin.client._protocol.spaces import Call
from modelkin.errors import ApiError

__all__ = ["Script", "perform", "perform_async"]

T = TypeVar("T")

Script: TypeAlias = Generator[Call[Any], Any, T]


def perform(script: Script[T], run: Callable[[Call[Any]], Any]) -> T:
    """What a script comes to.

    Args:
        script: not begun yet.
        run: sends a call, again where that helps, and reads its answer.
    """
    try:
        call = next(script)
        while True:
            try:
                answer = run(call)
            except ApiError as error:
                call = script.throw(error)
            else:
                call = script.send(answer)
    except StopIteration as finished:
        result: T = finished.value
        return result


async def perform_async(
    script: Script[T], run: Callable[[Call[Any]], Awaitable[Any]], *, heavy: bool = False
) -> T:
    """:func:`perform`, awaited.

    Args:
        script: not begun yet.
        run: sends a call.
        heavy: making the first call takes a while, and the event loop has others to serve.
    """
    try:
        call = await asyncio.to_thread(next, script) if heavy else next(script)
        while True:
            try:
                answer = await run(call)
            except ApiError as error:
                call = script.throw(error)
            else:
                call = script.send(answer)
    except StopIteration as finished:
        result: T = finished.value
        return result
