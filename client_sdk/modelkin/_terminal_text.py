"""Text on a terminal: untrusted characters made safe, and the columns that a text takes."""

from __future__ import annotations

import textwrap
import unicodedata
from datetime import UTC, datetime

__all__ = ["cut", "cut_end", "minute_of", "one_line", "pad", "width_of", "wrap"]


def one_line(text: str) -> str:
    """The text with unprintable characters escaped, since untrusted names may move the cursor.

    Those are control characters, marks of direction, halves of characters and line separators.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def width_of(text: str) -> int:
    """The columns of a terminal that a text takes: letters of East Asia take two, accents none."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(c) else 1 + (unicodedata.east_asian_width(c) in "WF")
        for c in text
    )


def minute_of(moment: datetime) -> str:
    """A point in time to the minute, in UTC; as it is where UTC has no such year."""
    try:
        return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M}"
    except OverflowError:
        return moment.isoformat()


def wrap(text: str, room: int) -> list[str]:
    """The text on lines of ``room`` columns; of letters that may take two, half as many."""
    room = room if width_of(text) == len(text) else room // 2
    return textwrap.wrap(text, room, break_on_hyphens=False)


def pad(text: str, width: int, *, right: bool) -> str:
    """The text in ``width`` columns, at their left or at their right; a longer one is cut."""
    text = cut(text, width)
    space = " " * (width - width_of(text))
    return space + text if right else text + space


def cut(text: str, width: int) -> str:
    """The text in at most ``width`` columns: names differ at their ends, so these stay."""
    if width_of(text) <= width:
        return text
    end = _start(text[::-1], width // 3)[::-1]
    return f"{_start(text, width - 1 - width_of(end))}…{end}"


def cut_end(text: str, width: int) -> str:
    """A sentence in at most ``width`` columns."""
    return text if width_of(text) <= width else f"{_start(text, width - 1)}…"


def _start(text: str, width: int) -> str:
    """Return as much of the start of a text as fits."""
    taken = 0
    for at, character in enumerate(text):
        taken += width_of(character)
        if taken > width:
            return text[:at]
    return text
