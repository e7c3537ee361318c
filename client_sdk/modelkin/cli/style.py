"""Colours on a terminal: which text has one, and whether standard output shows them.

``NO_COLOR`` (https://no-color.org) and ``TERM=dumb`` switch colours off, ``FORCE_COLOR`` on.
"""

from __future__ import annotations

import os
import re
import sys
from typing import Final, Self

__all__ = ["BAD", "FAINT", "GOOD", "HEAD", "WEAK", "Styled", "for_output", "is_wide_open", "paint"]

HEAD: Final = "1"
GOOD: Final = "32"
WEAK: Final = "33"
BAD: Final = "31"
FAINT: Final = "2"
"""Parameters of the terminal's SGR: bold, green, yellow, red, faint."""

_SGR: Final = re.compile("\x1b\\[[0-9;]*m")


class Styled(str):
    """A text of a table with a style."""

    __slots__ = ("style",)

    style: str

    def __new__(cls, text: str, style: str) -> Self:
        styled = super().__new__(cls, text)
        styled.style = style
        return styled


def paint(text: str, style: str) -> str:
    """Add a style's escapes to a text. No other text of an answer has escapes, see ``one_line``."""
    return f"\x1b[{style}m{text}\x1b[0m" if style and text else text


def for_output(text: str) -> str:
    """The text for standard output: without styles where it shows no colours."""
    return text if _has_colours() else _SGR.sub("", text)


def is_wide_open() -> bool:
    """Whether standard output takes any number of lines, because it is not a screen."""
    return not sys.stdout.isatty()


def _has_colours() -> bool:
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
