"""The meaning of SIGHUP: an operator asks for new processes, or the terminal has been closed."""

from __future__ import annotations

import os

__all__ = ["Terminal"]

_CONTROLLING = "/dev/tty"


class Terminal:
    """The terminal that this process was started from, if there was one."""

    def __init__(self) -> None:
        self._was_there = _is_there()

    @property
    def closed(self) -> bool:
        """Whether there is none any more, as opposed to none from the start."""
        return self._was_there and not _is_there()


def _is_there() -> bool:
    try:
        os.close(os.open(_CONTROLLING, os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True
