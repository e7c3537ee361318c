"""Fail-points: named places at which a test has this process die, or be slow.

``MODELKIN_FAIL_POINTS="before_commit=kill@3,after_rename=stall:2"`` kills the process when it comes
to its third commit, and holds it up for two seconds after each rename. Without the variable nothing
is armed, and a fail-point reads an empty dictionary once.
"""

from __future__ import annotations

import itertools
import logging
import os
import re
import signal
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, Literal

from modelkin.errors import InvalidParameter

__all__ = ["OPERATIONS", "Operation", "arm", "around", "reach"]

Operation = Literal["fsync", "rename", "put", "commit", "unlink", "buckets", "answer"]
OPERATIONS: Final[tuple[Operation, ...]] = (
    *("fsync", "rename", "put", "commit"),
    *("unlink", "buckets", "answer"),
)
"""Operations with a fail-point before and after them; a ``put`` creates an object in a bucket."""

_VARIABLE: Final = "MODELKIN_FAIL_POINTS"
_ENTRY: Final = re.compile(r"(\w+)=(?:(kill)|stall:(\d+(?:\.\d+)?))(?:@([1-9]\d*))?")
_POINTS: Final = tuple(f"{side}_{each}" for each in OPERATIONS for side in ("before", "after"))

log = logging.getLogger(__name__)


class around:  # noqa: N801  # used as a function
    """The fail-points before and after an operation; only a success reaches the second."""

    __slots__ = ("_operation",)

    def __init__(self, operation: Operation) -> None:
        self._operation = operation

    def __enter__(self) -> None:
        if _armed:
            reach(f"before_{self._operation}")

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if _armed and error_type is None:
            reach(f"after_{self._operation}")


def reach(point: str) -> None:
    """Come to a fail-point, which does nothing unless it is armed."""
    fault = _armed.get(point)
    if fault is not None:
        fault()


def arm() -> None:
    """Arm the fail-points of the environment; a process that serves does so once, at its start.

    Raises:
        InvalidParameter: the variable does not have the form of this module.
    """
    _armed.clear()
    for entry in filter(None, os.environ.get(_VARIABLE, "").split(",")):
        found = _ENTRY.fullmatch(entry.strip())
        if found is None or found[1] not in _POINTS:
            raise InvalidParameter(
                f"{_VARIABLE}: {entry!r} is not a fail-point: write POINT=kill@N or "
                f"POINT=stall:SECONDS, with one of {', '.join(_POINTS)}",
                field=_VARIABLE,
            )
        point, kills, seconds, at = found.groups()
        act = _kill if kills else _stall(float(seconds))
        _armed[point] = _Fault(act, int(at) if at else None)
        log.warning("fail-point %s is armed, as %s says: for tests alone", entry, _VARIABLE)


class _Fault:
    """The fault at an armed point: at one of the times that it is reached, or each time.

    Args:
        at: the number of the time; None for each time.
    """

    def __init__(self, act: Callable[[], None], at: int | None) -> None:
        self._act = act
        self._at = at
        self._reached = itertools.count(1)

    def __call__(self) -> None:
        if next(self._reached) == self._at or self._at is None:
            self._act()


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _stall(seconds: float) -> Callable[[], None]:
    return lambda: time.sleep(seconds)


_armed: Final[dict[str, _Fault]] = {}
