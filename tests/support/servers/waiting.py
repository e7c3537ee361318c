"""Waiting for what another process does, however busy the machine is."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["eventually", "wait_for"]

_TIMEOUT_S = 120.0
"""More than a process takes to start beside ten others on two cores."""
_PAUSE_S = 0.05


def wait_for(condition: Callable[[], object]) -> None:
    """Wait until it holds."""

    def holds() -> None:
        assert condition()

    eventually(holds)


def eventually(check: Callable[[], None]) -> None:
    """Repeat a check until it passes; at the end of the time it fails as it does by itself."""
    end = time.monotonic() + _TIMEOUT_S
    while time.monotonic() < end:
        try:
            check()
        except AssertionError:
            time.sleep(_PAUSE_S)
        else:
            return
    check()
