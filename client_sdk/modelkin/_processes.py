"""``PerProcess``: a value that each process makes for itself, also after a fork.

A forked process has its parent's connections, and answers on them are anybody's. It has the locks
that other threads of its parent held, too, which nobody will ever release.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Generic, TypeVar

__all__ = ["PerProcess"]

T = TypeVar("T")


class PerProcess(Generic[T]):
    """A value that is made when a process first asks for it; threads may share it.

    That of a parent is dropped without being closed: its sockets are the parent's too, and what a
    close would write on them, such as the end of TLS, would end them there.

    Args:
        make: makes the value of a process.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._made: dict[int, T] = {}

    def get(self) -> T:
        """The value of this process."""
        process = os.getpid()
        if process not in self._made:
            self._made.setdefault(process, self._make())  # that of the first thread counts
            for other in self._made.keys() - {process}:
                self._made.pop(other, None)
        return self._made[process]

    def made(self) -> T | None:
        """The value of this process, or None where it has made none."""
        return self._made.get(os.getpid())
