"""One line of a terminal that says how far something has come.

Owns the drawing, for uploads and for passes over checkpoints alike. Whoever draws asks first
whether there is a terminal: it never looks itself, and never writes to standard output.
"""

from __future__ import annotations

import shutil
import sys
import time
from typing import Final

__all__ = ["Line", "is_terminal"]

_WIDTH: Final = 30
_PAUSE: Final = 0.1
"""Seconds between two drawings."""


def is_terminal() -> bool:
    """Whether standard error is read by someone who sees a line being drawn again."""
    return sys.stderr.isatty()


class Line:
    """A line of standard error, drawn over itself and wiped in the end."""

    def __init__(self) -> None:
        self._drawn = -_PAUSE

    def draw(self, label: str, share: float | None, note: str = "") -> None:
        """Shows a bar, unless it has only just changed; the beginning and the end always show.

        Args:
            label: what is under way; cut where the terminal has no room for it, for a line that
                wraps cannot be wiped.
            share: how much of it is done, 0 to 1; None where nobody knows.
            note: what stands behind the percentage.
        """
        now = time.monotonic()
        if now - self._drawn < _PAUSE and (share is None or 0 < share < 1):
            return
        self._drawn = now
        bar = note
        if share is not None:
            bar = f" [{('#' * int(share * _WIDTH)).ljust(_WIDTH, '.')}] {share:4.0%}{note}"
        room = shutil.get_terminal_size().columns - len(bar) - 1
        shown = label if len(label) <= room else f"{label[: max(room - 1, 0)]}…"
        sys.stderr.write(f"\r{shown}{bar}\x1b[K")
        sys.stderr.flush()

    def wipe(self) -> None:
        """Leaves the line empty for whatever is written next."""
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()
