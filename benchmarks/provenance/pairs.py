"""Pairs of models of which it is known whether one comes from the other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Final

__all__ = ["ARCHITECTURES", "DERIVATIVES", "TRAININGS", "Pair", "models_of", "strangers_of"]

TRAININGS: Final = "strangers: two trainings of one configuration"
DERIVATIVES: Final = "strangers: a derivative of another training"
ARCHITECTURES: Final = "strangers: two architectures"


@dataclass(frozen=True, slots=True)
class Pair:
    """Two models on disk.

    Attributes:
        kind: how one was made from the other, or in what they are strangers.
        first: the folder of a model.
        second: that of the other one.
        are_kin: whether one has weights of the other.
    """

    kind: str
    first: Path
    second: Path
    are_kin: bool


def strangers_of(
    trainings: Iterable[Sequence[Path]], derivatives: Iterable[tuple[Path, Path]]
) -> list[Pair]:
    """The pairs of strangers.

    Args:
        trainings: for each architecture, models of one configuration that were trained apart.
        derivatives: of each one, a training that it does not come from.
    """
    groups = [list(group) for group in trainings]
    found = [
        Pair(TRAININGS, first, second, are_kin=False)
        for group in groups
        for first, second in combinations(group, 2)
    ]
    found += [Pair(DERIVATIVES, first, second, are_kin=False) for first, second in derivatives]
    found += [
        Pair(ARCHITECTURES, one[0], other[0], are_kin=False)
        for one, other in combinations(groups, 2)
    ]
    return found


def models_of(pairs: Iterable[Pair]) -> list[Path]:
    """The models of pairs, each once, in the order of the pairs."""
    return list(dict.fromkeys(model for pair in pairs for model in (pair.first, pair.second)))
