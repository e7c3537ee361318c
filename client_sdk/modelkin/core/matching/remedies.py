"""``remedy_of``: the tensors to leave out, so that a checkpoint fits a space or another like it."""

from __future__ import annotations

import glob
from collections.abc import Iterable
from dataclasses import dataclass

from modelkin.core.matching.correspondence import MIN_PART, MIN_SHARE, Correspondence

__all__ = ["Remedy", "remedy_of"]


@dataclass(frozen=True, slots=True)
class Remedy:
    """The tensors that are to be left out.

    Attributes:
        patterns: shell patterns of their names.
        of_space: whether the space has to leave them out, too, so that it must be another one.
    """

    patterns: tuple[str, ...]
    of_space: bool


def remedy_of(found: Correspondence) -> Remedy | None:
    """What to leave out where a checkpoint has too little of a space; None if nothing helps."""
    common = [found.source.tensors[piece.source].name for piece in found.pieces]
    if found.share >= MIN_SHARE:
        own = _patterns((spec.name for spec in found.beyond), common)
        return Remedy(tuple(own), of_space=False)
    if found.covered < MIN_PART * found.source.num_parameters:
        return None
    cropped = {glob.escape(spec.name) for pair in found.cropped for spec in pair}
    both = (spec.name for spec in (*found.missing, *found.beyond))
    return Remedy(tuple(sorted({*cropped, *_patterns(both, common)})), of_space=True)


def _patterns(names: Iterable[str], kept: Iterable[str]) -> list[str]:
    """The fewest beginnings of names that match these names, and none of others."""
    shared = {part for name in kept for part in _parts(name)}
    found: dict[str, None] = {}
    for name in names:
        own = next((part for part in _parts(name) if part not in shared), name)
        found[glob.escape(own) + ("" if own == name else ".*")] = None
    return list(found)


def _parts(name: str) -> list[str]:
    """A name's beginnings up to each dot, the shortest first, and the name."""
    parts = name.split(".")
    return [".".join(parts[: at + 1]) for at in range(len(parts))]
