"""What groups of calls need of the client that they are part of: it sends a call.

A group is a class of the calls about one thing, for :class:`Client`, with its twin for
:class:`AsyncClient` beside it; the clients inherit them all.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import TypeVar

from modelkin.client._protocol.spaces import Call
from modelkin.client._transport.progress import Progress
from modelkin.types.paging import Page

__all__ = ["AsyncCalling", "Calling"]

T = TypeVar("T")


class Calling(ABC):
    """Sends a call and answers its result, or the rows of all its pages."""

    _sleep: Callable[[float], object]

    @abstractmethod
    def _run(self, call: Call[T], report: Progress | None = None) -> T: ...

    @abstractmethod
    def _rows(self, call: Call[Page[T]]) -> Iterator[T]: ...


class AsyncCalling(ABC):
    """:class:`Calling`, awaited."""

    _sleep: Callable[[float], Awaitable[object]]

    @abstractmethod
    def _rows(self, call: Call[Page[T]]) -> AsyncIterator[T]: ...

    @abstractmethod
    async def _run(self, call: Call[T], report: Progress | None = None) -> T: ...
