"""``broken_line``: where the head of a model card is no YAML.

No parser of YAML is needed to read the few plain forms of a card's fields. This finds what every
parser refuses: what is opened and not closed, a second colon in a plain text, a line that is
neither a field nor an item, and a tab before a field.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

__all__ = ["broken_line"]

_KEY: Final = re.compile(
    r"(?:\"[^\"]*\"|'[^']*'|[^\s\"'#\[\]{},&*!|>%@`-][^#]*?|-[^\s#][^#]*?):(?=\s|$)"
)
_ITEMS: Final = re.compile(r"(?:[-?:] +)*(?:[-?:]$)?")
_REFUSED: Final = re.compile(r":\s|:$|^- ")
_CLOSED: Final = {"[": "]", "{": "}"}


def broken_line(lines: Sequence[str]) -> int | None:
    """The number of the first line that is no YAML, counted from 1; None if all may be.

    Args:
        lines: those between the two lines of ``---``.
    """
    open_since, waiting, deeper_than, valued_at = 0, "", -1, -1
    for number, line in enumerate(lines, 1):
        text = line.lstrip(" ")
        indent = len(line) - len(text)
        if waiting:
            waiting = _left_open(text, waiting)
            continue
        if not text.strip() or text.startswith("#") or indent > deeper_than >= 0:
            continue
        deeper_than = -1
        if text.startswith("\t"):
            return number
        begin = _ITEMS.match(text)
        value = text[begin.end() :] if begin else text
        column, is_item = indent + len(text) - len(value), value != text
        field = _KEY.match(value)
        if field is not None and column > valued_at >= 0:
            return number  # a field within the text of another
        if field is not None:
            value = value[field.end() :]
            valued_at = column if value.strip() else -1
        elif not is_item and indent == 0:
            return number
        value = value.strip()
        if value[:1] in ("|", ">"):
            deeper_than = indent
        elif value[:1] in ("[", "{", '"', "'"):
            waiting, open_since = _left_open(value, ""), number
        elif value[:1] in ("@", "`", "%") or _REFUSED.search(value.partition(" #")[0]):
            return number
    return open_since if waiting else None


def _left_open(text: str, waiting: str) -> str:
    """The ends that a text still waits for, the innermost last: brackets and quotes."""
    at = 0
    while at < len(text):
        sign, at = text[at], at + 1
        if waiting[-1:] in ('"', "'"):
            if sign == "\\" and waiting[-1] == '"':
                at += 1
            elif sign == waiting[-1]:
                waiting = waiting[:-1]
        elif sign in _CLOSED:
            waiting += _CLOSED[sign]
        elif sign == waiting[-1:]:
            waiting = waiting[:-1]
        elif sign in "\"'" and (at == 1 or text[at - 2] in " ,[{:"):
            waiting += sign
        elif sign == "#" and at > 1 and text[at - 2] == " ":
            break
        if not waiting:
            break
    return waiting
