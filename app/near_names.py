"""Near matches of an unknown name, for the message about it."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import SequenceMatcher
from typing import Final

__all__ = ["did_you_mean", "nearest"]

_MIN_RATIO: Final = 0.6
"""The least share of the characters of two names that they have in order; difflib's default."""
_MAX_COMPARED: Final = 10
"""Names that are compared in order, which takes time in the square of their length."""
_MAX_LENGTH: Final = 200
"""The most characters of a name; a longer text was not mistyped."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """``; did you mean 'tag'?`` for the end of a message; empty where no known name is near."""
    near = nearest(name, known)
    return "" if near is None else f"; did you mean {near!r}?"


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that ``name`` most likely stands for.

    Upper and lower case count as equal, and so does a name without its ``org/``. The cost has a
    bound for each known name; the caller bounds their number.

    Args:
        name: an unknown name, of any length.
        known: the names that exist; among equally near names the first in alphabetical order wins.

    Returns:
        A name, or None if no name shares more than half of its characters with it.
    """
    if not 0 < len(name) <= _MAX_LENGTH:
        return None
    wanted = name.casefold()
    others = sorted(other for other in set(known) if other != name and len(other) <= _MAX_LENGTH)
    for same in (_is_equal, _is_tail):
        for other in others:
            if same(wanted, other.casefold()):
                return other
    return _most_similar(wanted, others)


def _is_equal(wanted: str, other: str) -> bool:
    return wanted == other


def _is_tail(wanted: str, other: str) -> bool:
    """Whether one is the other behind an ``org/``."""
    return wanted.endswith(f"/{other}") or other.endswith(f"/{wanted}")


def _most_similar(wanted: str, others: list[str]) -> str | None:
    matcher = SequenceMatcher(b=wanted, autojunk=False)
    bounds = []
    for other in others:
        matcher.set_seq1(other.casefold())
        if matcher.real_quick_ratio() >= _MIN_RATIO:
            bounds.append((-matcher.quick_ratio(), other))
    ratios = []
    for _, other in sorted(bounds)[:_MAX_COMPARED]:
        matcher.set_seq1(other.casefold())
        ratios.append((-matcher.ratio(), other))
    best, found = min(ratios, default=(0.0, None))
    return found if -best >= _MIN_RATIO else None
