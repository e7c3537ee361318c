"""``Flow``: calls in sequence, each of which may depend on the answers before.

A flow is a generator of calls. It gets the answer to each call, or its refusal as an exception, and
returns a result. It does no I/O: the clients send its calls.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from modelkin.client._protocol.calls.call import Call

__all__ = ["AsyncRun", "Flow", "Run", "Step", "next_step"]

T = TypeVar("T")

Flow: TypeAlias = Generator[Call[Any], Any, T]

Run: TypeAlias = Callable[[Call[Any]], Any]
"""A function that sends a call, with retries, and reads its answer."""

AsyncRun: TypeAlias = Callable[[Call[Any]], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a flow: its next call, or its result after the last call."""

    call: Call[Any] | None
    result: Any = None


def next_step(proceed: Callable[[Any], Call[Any]], sent: Any) -> Step:
    """Return the next step of a flow; ``StopIteration``, its end, could not leave a thread.

    Args:
        proceed: ``send`` or ``throw`` of the flow.
        sent: the answer to the last call, or its refusal.
    """
    try:
        return Step(proceed(sent))
    except StopIteration as finished:
        return Step(None, finished.value)
