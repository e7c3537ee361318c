"""Deadlines: how long a call may take in all, and timeouts that end with it."""

from __future__ import annotations

import time
from typing import Final, Self

__all__ = ["Deadline", "Until", "seconds_left"]

_LEAST_S: Final = 0.001
"""The least timeout that is handed on: 0 would mean "do not wait" to a socket."""


class Deadline:
    """The end of a call.

    Args:
        seconds: the seconds that the call may take from now, with its retries.
        idle: the seconds for connecting and for each pause.
    """

    def __init__(self, seconds: float, idle: float) -> None:
        self.seconds = seconds
        self.idle = min(idle, seconds)
        self.restart()

    def restart(self) -> None:
        """Begin again, for the next part of a long download."""
        self._end = time.monotonic() + self.seconds

    @property
    def left(self) -> float:
        """The seconds left, negative once it has passed."""
        return self._end - time.monotonic()

    def timeouts(self) -> dict[str, float]:
        """The timeouts of a request, for ``extensions`` of httpx.

        A wait for our own connection pool says nothing about the service: the call alone ends it.
        """
        idle = Until(self.idle, self)
        return {
            "connect": idle,
            "read": idle,
            "write": idle,
            "pool": Until(self.seconds, self),
        }


class Until(float):
    """A timeout in seconds that ends with the call that it belongs to.

    httpcore hands a timeout on to the network as it got it, so each read asks how much is left.
    """

    __slots__ = ("_deadline", "_seconds")

    _seconds: float
    _deadline: Deadline

    def __new__(cls, seconds: float, deadline: Deadline) -> Self:
        until = super().__new__(cls, max(min(seconds, deadline.left), _LEAST_S))
        until._seconds, until._deadline = seconds, deadline
        return until

    @property
    def left(self) -> float:
        """The seconds to wait from now; 0 or less once the call is over."""
        return min(self._seconds, self._deadline.left)


def seconds_left(timeout: float | None, late: type[Exception]) -> float | None:
    """The seconds that one step of the network may take.

    Args:
        timeout: the timeout of the request.
        late: the error to raise where the call is over.
    """
    left = timeout.left if isinstance(timeout, Until) else timeout
    if left is not None and left <= 0:
        raise late("the time of the call is over")
    return left
