"""``Deadline``: the end of the computation of an answer.

Loops check it between their parts, so that a loop ends within the time of a part.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

from app.infra.errors import ClientLeft, TooMuch

__all__ = ["NEVER", "Deadline"]

T = TypeVar("T")


class Deadline:
    """The end of the time that a computation may take; sooner, once its client has left.

    Args:
        seconds: the time from now on.
        is_abandoned: a function that says whether the client has left; called from any thread.
    """

    def __init__(self, seconds: float, is_abandoned: Callable[[], bool] = lambda: False) -> None:
        self._seconds = seconds
        self._end = time.monotonic() + seconds
        self._is_abandoned = is_abandoned

    def passed(self) -> bool:
        """Whether the computation must end with what it has found."""
        return time.monotonic() >= self._end or self._is_abandoned()

    def left(self) -> float:
        """The seconds that are left; none once the client has left."""
        return 0.0 if self._is_abandoned() else max(0.0, self._end - time.monotonic())

    def until(self, items: Iterable[T]) -> Iterator[T]:
        """The items, as far as there is time for them."""
        for item in items:
            if self.passed():
                return
            yield item

    def require(self, what: str, instead: str) -> None:
        """End a computation without useful partial results, once the time is over.

        Args:
            what: the computed thing, as a clause.
            instead: a request that would take less time.

        Raises:
            TooMuch: the time is over.
            ClientLeft: the client has left.
        """
        self.require_client()
        if self.passed():
            raise TooMuch(
                f"{what} took longer than the {self._seconds:g} seconds that an answer may take "
                f"(MODELKIN_QUERY_TIMEOUT_SECONDS): {instead}"
            )

    def require_client(self) -> None:
        """End a computation whose client has left.

        Raises:
            ClientLeft: the client has left.
        """
        if self._is_abandoned():
            raise ClientLeft("the client left before it had its answer")


NEVER: Final = Deadline(math.inf)
"""The deadline of jobs, whose time others limit."""
