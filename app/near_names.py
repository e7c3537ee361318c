"""Near matches of an unknown name, for the message about it."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

__all__ = ["did_you_mean", "mistyped", "nearest"]

_MIN_RATIO: Final = 0.6
"""The least share of the characters of two names that they have in common and in order."""
_MISTYPED_RATIO: Final = 0.9
"""The least such share of a name that is wrong though nobody asked for it."""
_MAX_LENGTH: Final = 200
"""The most characters of a name; a longer text was not mistyped."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """``; did you mean 'tag'?`` for the end of a message; empty where no known name is near."""
    near = nearest(name, known)
    return "" if near is None else f"; did you mean {near!r}?"


def mistyped(name: str, known: Iterable[str]) -> str | None:
    """The known name that ``name`` was most likely meant to be; None where it may be right.

    It has the same digits, and nearly all characters: a name that only resembles another one, such
    as that of a larger model of a series, is no mistake.
    """

    def digits(text: str) -> list[str]:
        return [each for each in text if each.isdigit()]

    if len(name) > _MAX_LENGTH:
        return None
    found = get_close_matches(name, [*known], n=1, cutoff=_MISTYPED_RATIO)
    return next((each for each in found if digits(each) == digits(name)), None)


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that ``name`` most likely stands for.

    Upper and lower case count as equal, and so does a name without its ``org/``. The cost has a
    bound for each known name; the caller bounds their number.

    Args:
        name: an unknown name, of any length.
        known: the names that exist; among equally near names the first in alphabetical order wins.

    Returns:
        A name, or None if no name shares 60% of the characters of both, counted together, and of
        what follows an owner that both have.
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
    """Return the name with the largest share of characters in common and in order.

    What follows an owner that both have has to be as near: all names of an owner begin alike.
    """
    places = _places(wanted)
    owner = wanted[: wanted.rfind("/") + 1]
    own, own_places = wanted[len(owner) :], _places(wanted[len(owner) :])
    best, found = 0.0, None
    for other in others:
        folded = other.casefold()  # may be longer: ß is ss
        total = len(wanted) + len(folded)
        possible = 2 * min(len(wanted), len(folded)) / total
        if possible < _MIN_RATIO or possible <= best:
            continue
        ratio = 2 * _common_length(places, len(wanted), folded) / total
        if ratio <= best:
            continue
        rest = folded.removeprefix(owner)
        if owner and 0 < len(rest) < len(folded):
            common = _common_length(own_places, len(own), rest)
            if 2 * common < _MIN_RATIO * (len(own) + len(rest)):
                continue
        best, found = ratio, other
    return found if best >= _MIN_RATIO else None


def _places(text: str) -> dict[str, int]:
    """The bits of each character's places in a text."""
    places: dict[str, int] = {}
    for at, character in enumerate(text):
        places[character] = places.get(character, 0) | 1 << at
    return places


def _common_length(places: dict[str, int], length: int, other: str) -> int:
    """Return the length of the longest common subsequence, a character of ``other`` at a time.

    ``difflib`` takes the longest common block first, and so misses a letter more in ``axaa``.

    Args:
        places: the bits of each character's places in the first text.
        length: the length of the first text.
        other: the second text.

    Source: Hyyrö, "Bit-parallel LCS-length computation revisited", 2004.
    """
    everywhere = (1 << length) - 1
    row = everywhere
    for character in other:
        matches = row & places.get(character, 0)
        row = ((row + matches) | (row - matches)) & everywhere
    return length - row.bit_count()
