"""A wall clock that jumps: what a process takes for now is now and an offset that a test sets.

``python -m tests.faults.clock --clock=FILE --runs=MODULE ...`` runs a module under it. As in a real
jump the monotonic clock goes on as before, and so do the clocks of the database and the file
system, which are other machines' here.
"""

from __future__ import annotations

import datetime as datetimes
import mmap
import runpy
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["Clock"]

_Real = datetimes.datetime
_DOUBLE = struct.Struct("d")
_OURS = "app", "workers", "tests.support.jobs"


class Clock:
    """The offset of the processes that run under it.

    Args:
        file: holds the offset; created at zero.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self.jump(0.0)

    def jump(self, seconds: float) -> None:
        """Be so far ahead of the true time from now on, or behind it."""
        with self.file.open("r+b" if self.file.exists() else "w+b") as opened:
            opened.write(_DOUBLE.pack(seconds))

    def flags(self, module: str) -> tuple[str, str]:
        """What a command line of this module needs to run another one under the clock."""
        return f"--clock={self.file}", f"--runs={module}"


def _install(file: Path) -> None:
    """Put the clock in the place of those that the service reads."""
    with file.open("rb") as opened:
        held = mmap.mmap(opened.fileno(), _DOUBLE.size, access=mmap.ACCESS_READ)
    true_time: Callable[[], float] = time.time

    def offset() -> float:
        return float(_DOUBLE.unpack(held)[0])

    class Kind(type):
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, _Real)

    class Jumping(_Real, metaclass=Kind):
        def __new__(cls, *args: Any, **kwargs: Any) -> Any:
            return _Real(*args, **kwargs)

        @classmethod
        def now(cls, tz: datetimes.tzinfo | None = None) -> Any:
            return _Real.now(tz) + datetimes.timedelta(seconds=offset())

        @classmethod
        def fromtimestamp(cls, *args: Any, **kwargs: Any) -> Any:
            return _Real.fromtimestamp(*args, **kwargs)

        @classmethod
        def fromisoformat(cls, text: str) -> Any:
            return _Real.fromisoformat(text)

    time.time = lambda: true_time() + offset()
    time.time_ns = lambda: int(time.time() * 1e9)
    for name, module in list(sys.modules.items()):
        if name.startswith(_OURS) and vars(module).get("datetime") is _Real:
            vars(module)["datetime"] = Jumping
    datetimes.datetime = Jumping  # type: ignore[misc]  # for what is imported later


def _taken(name: str) -> str:
    """The value of a flag, which the module that is run does not see."""
    (flag,) = (word for word in sys.argv if word.startswith(f"--{name}="))
    sys.argv.remove(flag)
    return flag.partition("=")[2]


if __name__ == "__main__":
    _install(Path(_taken("clock")))
    runpy.run_module(_taken("runs"), run_name="__main__", alter_sys=True)
