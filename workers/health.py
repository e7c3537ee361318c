"""The health of a worker: a file that it touches while it lives, and the check of that file.

``python -m workers.health FILE`` is for the health checks of containers: a worker listens nowhere.
"""

from __future__ import annotations

import logging
import sys
import time
from pathlib import Path
from typing import Final

__all__ = ["MAX_AGE_S", "HealthFile", "check"]

MAX_AGE_S: Final = 60.0
"""Age of the file from which on its worker counts as dead, or as cut off from its database."""
_INTERVAL_S: Final = 5.0
"""Seconds between two touches at least."""

log = logging.getLogger(__name__)


class HealthFile:
    """The file that a worker touches while it works or stands by.

    Args:
        path: the file, created if it does not exist; None for no file.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._next = 0.0

    def touch(self) -> None:
        """Touch the file, unless that was done just now. If the file cannot be written, log why."""
        if self._path is None or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _INTERVAL_S
        try:
            self._path.touch()
        except OSError as error:
            log.warning("the health file of this worker cannot be written: %s", error)


def check(path: Path) -> str | None:
    """Say why the worker that touches ``path`` is not healthy; None if it is."""
    try:
        age = time.time() - path.stat().st_mtime
    except OSError as error:
        return f"no worker has touched this file: {error}"
    if age > MAX_AGE_S:
        return f"the last sign of life is {age:.0f} s old: the worker hangs, or has no database"
    return None


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m workers.health FILE")
    sys.exit(check(Path(sys.argv[1])))
