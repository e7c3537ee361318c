"""Text on a terminal: untrusted characters made safe, and the columns that a text takes."""

from __future__ import annotations

import unicodedata
from datetime import UTC, datetime

__all__ = ["minute_of", "one_line", "width_of"]


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
