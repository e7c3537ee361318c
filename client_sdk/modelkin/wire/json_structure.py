"""Bounds on the arrays and objects of a JSON text, checked before any parser makes them.

An array takes two bytes of text and sixty of memory, and the garbage collector walks it again and
again. The counts come from the bytes alone: linear time, a millisecond a megabyte.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from modelkin.core.codecs.checks import Payload

__all__ = ["MAX_DEPTH", "check_structure"]

MAX_DEPTH: Final = 100
"""Levels of arrays and objects."""
_FREE_CONTAINERS: Final = 10_000
"""Arrays and objects that a text of any length may have."""
_BYTES_PER_CONTAINER: Final = 8
"""The least bytes of text for each array or object beyond those; the densest layout has 12."""

_KEPT: Final = b'[]{}"'
_DROPPED: Final = bytes(set(range(256)) - set(_KEPT))
_OPENING: Final = np.frombuffer(b"[{", np.uint8)


def check_structure(data: Payload) -> None:
    """Refuse a JSON text of too many levels, or of too many arrays and objects for its length.

    What is not JSON may pass, and is left to the parser.

    Raises:
        ValueError: says which of the two, how many there are and how many there may be.
    """
    brackets = _brackets(bytes(data))
    count = brackets.count(b"[") + brackets.count(b"{")
    if count <= MAX_DEPTH:
        return
    most, depth = max(_FREE_CONTAINERS, len(data) // _BYTES_PER_CONTAINER), _depth(brackets)
    if depth > MAX_DEPTH:
        raise ValueError(f"nested too deeply: {depth} levels are more than {MAX_DEPTH}")
    if count > most:
        raise ValueError(f"{count} arrays and objects in {len(data)} bytes are more than {most}")


def _depth(brackets: bytes) -> int:
    opens = np.isin(np.frombuffer(brackets, np.uint8), _OPENING)
    return int(np.where(opens, 1, -1).cumsum().max(initial=0))


def _brackets(text: bytes) -> bytes:
    """The brackets and braces outside of strings."""
    if b"\\" in text:
        text = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    marks = text.translate(None, _DROPPED)
    # Two adjacent quotes are a string without brackets, or end one and begin the next.
    return b"".join(marks.replace(b'""', b"").split(b'"')[::2])
