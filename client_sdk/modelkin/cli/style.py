"""Colours on a terminal: which text has one, and whether standard output shows them.

``NO_COLOR`` (https://no-color.org) and ``TERM=dumb`` switch colours off, ``FORCE_COLOR`` on.
"""

from __future__ import annotations

import os
import re
import sys
from itertools import chain, zip_longest
from typing import Final, Self

from modelkin._terminal_text import one_line

__all__ = ["BAD", "FAINT", "GOOD", "HEAD", "WEAK", "Styled", "for_output", "is_wide_open", "paint"]

HEAD: Final = "1"
GOOD: Final = "32"
WEAK: Final = "33"
BAD: Final = "31"
FAINT: Final = "2"
"""Parameters of the terminal's SGR: bold, green, yellow, red, faint."""

_SGR: Final = re.compile(f"(\x1b\\[(?:0|{'|'.join((HEAD, GOOD, WEAK, BAD, FAINT))})m|[\n\t])")
"""Tabs, the ends of lines and the styles above, which are all that moves a terminal's cursor."""


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
    """The text for standard output: without styles where it shows no colours.

    Whatever a command has put into its text, a terminal gets printable characters, tabs, the
    ends of lines and the styles of this module.
    """
    parts = _SGR.split(text)
    shown = [one_line(part) for part in parts[::2]]
    has_colours = _has_colours()
    marks = (part if part in {"\n", "\t"} or has_colours else "" for part in parts[1::2])
    return "".join(chain.from_iterable(zip_longest(shown, marks, fillvalue="")))


def is_wide_open() -> bool:
    """Whether standard output takes any number of lines, because it is not a screen."""
    return not sys.stdout.isatty()


def _has_colours() -> bool:
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
