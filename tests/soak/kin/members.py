"""The checkpoints of a hub, and the truth: made of what, kin to whom, declared or not."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Literal

import numpy.typing as npt

__all__ = ["OWNER", "UNSURE", "Member", "members"]

OWNER: Final = "lab"
UNSURE: Final = frozenset({"none", "related", "shares", "reuses"})
"""Relations that say no more than that lines are shared, or nothing."""

Tensors = dict[str, npt.NDArray[Any]]
Merged = Literal["average", "assembled"]

_FIRST: Final = datetime(2024, 1, 1)
_CHANGED: Final = "changed"
_MADE: Final = (
    ("with the names and order of GGUF", "layout", _CHANGED),
    ("fused and renamed|permuted", "layout", ""),
    ("transposed|flipped signs", "layout copy", ""),
    ("folded gains", "layout", _CHANGED),
    ("experts", "upcycled", _CHANGED),
    ("up-scaled|deeper", "depth_up_scaled", _CHANGED),
    ("fewer layers", "layers_dropped", _CHANGED),
    ("tokens", "vocabulary_resized", _CHANGED),
    ("hidden units|places of the stream", "pruned", _CHANGED),
    ("new head", "head_changed", _CHANGED),
    ("shard", "vocabulary_resized pruned part", ""),
    ("layers of two strangers", "added assembled", ""),
)
"""What is true of a checkpoint beside its base, by what its name has of how it was made: the words
for it, and a vaguer one. All others were trained on, rounded or made noisy, all of which lines call
``changed``."""
_MERGED: Final[dict[str, Merged]] = {"merge": "average", "layers of two": "assembled"}
_COPIES: Final = (
    ("^(.*), (transposed|flipped signs)$", r"\1"),
    (r"^merge, SLERP (.*)$", r"merge, linear \1"),
)
"""Of what a checkpoint has all lines, or 99% and more: angles this small are next to straight."""


@dataclass(frozen=True)
class Member:
    """A checkpoint of the hub.

    Attributes:
        name: of its repository.
        families: those that it has lines of; two members are kin where they share one.
        base: the member that it was made of; None of what was trained from nothing.
        declared: the bases that its page declares.
        is_right: whether these are true; None where none is declared.
        words: for what was done to its base.
        vaguer: words that are true of it as well, and say less.
        merged: how it was made of two members.
        copied: the member that it has the lines of.
        created: when its page says that it was published.
    """

    name: str
    families: frozenset[str]
    base: str | None
    declared: tuple[str, ...]
    is_right: bool | None
    words: frozenset[str]
    vaguer: frozenset[str]
    merged: Merged | None
    copied: str | None
    created: str

    def is_kin(self, other: Member) -> bool:
        """Whether the two have a family in common."""
        return bool(self.families & other.families)

    @property
    def card(self) -> dict[str, Any]:
        """The metadata of its page."""
        bases = {"base_model": list(self.declared)} if self.declared else {}
        return {"license": "mit", **bases}


def members(made: Iterable[tuple[str, str, Tensors]]) -> Iterator[tuple[Member, Tensors]]:
    """Each checkpoint with the truth about it, in the order in which they are published.

    Of three that are made of another one, one declares it, one declares nothing, and one declares
    a stranger.

    Args:
        made: the name of each, a letter for each family, and its weights. ``base`` and ``stranger``
            are what two families begin with; of what is made of ``x``, the name begins with ``x,``.
    """
    known, numbers = set[str](), dict[str, int]()
    for number, (told, families, tensors) in enumerate(made):
        base = _base_of(told, known)
        known.add(told)
        declared: tuple[str, ...] = ()
        is_right: bool | None = None
        if base is not None:
            turn = numbers[base] = numbers.get(base, -1) + 1
            declared, is_right = _declared(base, families, turn)
        yield (
            Member(
                _repository(told),
                frozenset(families),
                None if base is None else _repository(base),
                declared,
                is_right,
                *_words(told),
                next((how for begin, how in _MERGED.items() if told.startswith(begin)), None),
                _copied(told),
                f"{_FIRST + timedelta(days=number):%Y-%m-%dT%H:%M:%S}.000Z",
            ),
            tensors,
        )


def _repository(told: str) -> str:
    return f"{OWNER}/{re.sub(r'[^a-z0-9.]+', '-', told.lower()).strip('-')}"


def _base_of(told: str, known: set[str]) -> str | None:
    if told in ("base", "stranger"):
        return None
    first = told.partition(", ")[0]
    return first if first in known else "base"


def _declared(base: str, families: str, turn: int) -> tuple[tuple[str, ...], bool | None]:
    if turn % 3 == 1:
        return (), None
    if turn % 3 == 0:
        both = ("base", "stranger") if len(families) > 1 else (base,)
        return tuple(map(_repository, both)), True
    if len(families) > 1:  # no member is a stranger to it
        return (), None
    return (_repository("base" if families == "B" else "stranger"),), False


def _words(told: str) -> tuple[frozenset[str], frozenset[str]]:
    how = told.partition(", ")[2] or told
    for pattern, words, vaguer in _MADE:
        if re.search(pattern, how):
            return frozenset(words.split()), frozenset(vaguer.split())
    return frozenset({_CHANGED}), frozenset()


def _copied(told: str) -> str | None:
    for pattern, original in _COPIES:
        if found := re.match(pattern, told):
            return _repository(found.expand(original))
    return None
