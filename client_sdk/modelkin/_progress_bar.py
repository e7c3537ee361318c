"""A progress bar on one line of a terminal, for uploads and for passes over checkpoints.

It is drawn on standard error, never on standard output. Callers check :func:`is_terminal` first.
"""

from __future__ import annotations

import shutil
import sys
import time
from typing import Final

from modelkin._terminal_text import one_line

__all__ = ["ProgressLine", "is_terminal"]

_BAR_WIDTH: Final = 30
_REDRAW_INTERVAL_S: Final = 0.1


def is_terminal() -> bool:
    """Whether standard error is a terminal, which can show a line that is redrawn."""
    return sys.stderr.isatty()


class ProgressLine:
    """A line of standard error, drawn over itself and wiped in the end."""

    def __init__(self) -> None:
        self._drawn = -_REDRAW_INTERVAL_S

    def draw(self, label: str, share: float | None, note: str = "") -> None:
        """Draw the bar, at most every 0.1 s; the start and the end are always drawn.

        Args:
            label: names the work; it is cut to the width of the terminal, because a line that
                wraps cannot be wiped.
            share: the share done, 0 to 1; None where it is not known.
            note: follows the percentage.
        """
        now = time.monotonic()
        if now - self._drawn < _REDRAW_INTERVAL_S and (share is None or 0 < share < 1):
            return
        self._drawn = now
        bar = note = one_line(note)
        if share is not None:
            share = min(max(share, 0.0), 1.0)  # a service said how much is done
            bar = f" [{('#' * int(share * _BAR_WIDTH)).ljust(_BAR_WIDTH, '.')}] {share:4.0%}{note}"
        room = shutil.get_terminal_size().columns - len(bar) - 1
        label = one_line(label)
        shown = label if len(label) <= room else f"{label[: max(room - 1, 0)]}…"
        sys.stderr.write(f"\r{shown}{bar}\x1b[K")
        sys.stderr.flush()

    def wipe(self) -> None:
        """Empty the line for the next output."""
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()
