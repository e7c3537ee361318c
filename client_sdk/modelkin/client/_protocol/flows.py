"""``Flow``: calls in sequence, each of which may depend on the answers before.

A flow is a generator of calls. It is sent the answer to each, or thrown its refusal, and returns
the result of them all. It does no I/O: the clients send its calls.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeAlias, TypeVar

from modelkin.client._protocol.call import Call

__all__ = ["AsyncRun", "Flow", "Run"]

T = TypeVar("T")

Flow: TypeAlias = Generator[Call[Any], Any, T]

Run: TypeAlias = Callable[[Call[Any]], Any]
"""Sends a call, with retries, and reads its answer."""

AsyncRun: TypeAlias = Callable[[Call[Any]], Awaitable[Any]]
