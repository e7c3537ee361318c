"""Whether a declared base agrees with what is measured: the rules, and nothing but the rules.

Similarity has no direction, so it can contradict a declared base and never prove one. Three things
are asked of it: does the base stand out from the models that have nothing to do with this one; is
another model nearer; and if so, does that one lie between the two or beyond (a model made from this
one is nearer to it than the base may be, and farther from the base than this one is)?
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from modelkin.core.similarity.background import Background

__all__ = [
    "FEWEST",
    "Judgement",
    "Measured",
    "Rival",
    "Verdict",
    "judge",
    "limit_of",
    "stands_out",
]

Verdict = Literal["consistent", "mismatch", "inconclusive"]

STANDS_OUT = 3.0
"""Deviations above the background's middle from which on a model stands out."""
LEAST_DEVIATION = 0.02
"""What the similarities of unrelated models differ by in any case."""
SAME = 0.05
"""Similarities no farther apart are the same: models made alike differ by as much."""
CERTAIN = 3.0
"""Standard errors by which two estimates must differ to be held different."""
ROOM = 0.7
"""Where even unrelated models may be so similar, a base that does not stand out is no mismatch."""
FEWEST = 3
"""Models that a background needs."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A similarity and its standard error, 0 where it is exact."""

    similarity: float
    standard_error: float


@dataclass(frozen=True, slots=True)
class Rival:
    """Another model that the one in question may have been made from.

    Attributes:
        to_model: its similarity to the model in question.
        to_base: its similarity to the declared base.
    """

    to_model: Measured
    to_base: Measured


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict, and what decided it.

    Attributes:
        verdict: ``inconclusive`` also where there are too few models to compare with.
        rival: the position of the rival that contradicts the base or leaves it in doubt, or None.
        reason: ``"rival"``, ``"doubt"``, ``"background"``, ``"stands_out"``, ``"nearest"``,
            ``"few"`` or ``"unclear"``.
    """

    verdict: Verdict
    reason: str
    rival: int | None = None


def judge(
    base: Measured,
    rivals: Sequence[Rival],
    background: Background,
    *,
    unrelated: bool = True,
    runner_up: Measured | None = None,
) -> Judgement:
    """What the measurements say of a declared base.

    Args:
        base: its similarity to the model.
        rivals: the other models nearest to the model, the nearest first, without those that are
            declared to be made from the model or from the base.
        background: of the models that are no declared relatives; a robust one.
        unrelated: whether it is of these. Where there are too few, it is of all other models, and
            then a base may be as near as those are.
        runner_up: the nearest model besides the base that is not declared to be made from this one;
            None where there is none.
    """
    contradicted, doubtful = _against(base, rivals, background if unrelated else None)
    if contradicted is not None:
        return Judgement("mismatch", "rival", contradicted)
    if background.models < FEWEST:
        return Judgement("inconclusive", "few")
    standing, ahead = stands_out(base, background), _is_ahead(base, runner_up, background)
    if standing is False and unrelated and not ahead and limit_of(background) <= ROOM:
        return Judgement("mismatch", "background")
    if doubtful is not None:
        return Judgement("inconclusive", "doubt", doubtful)
    if standing:
        return Judgement("consistent", "stands_out")
    if ahead:
        return Judgement("consistent", "nearest")
    return Judgement("inconclusive", "unclear")


def _against(
    base: Measured, rivals: Sequence[Rival], unrelated: Background | None
) -> tuple[int | None, int | None]:
    """Who contradicts the base, and who leaves it in doubt.

    Args:
        unrelated: the background, where it is of models that are no relatives; who does not stand
            out of them is as near as they are by chance, and says nothing.
    """
    doubtful = None
    enough = unrelated is not None and unrelated.models >= FEWEST
    for position, rival in enumerate(rivals):
        if enough and unrelated is not None and stands_out(rival.to_model, unrelated) is False:
            continue
        nearer = _above(rival.to_model, base)
        if nearer is False or _above(base, rival.to_base):
            continue  # it is no nearer, or it lies beyond the model
        if nearer and _above(rival.to_base, base):
            return position, None
        doubtful = position if doubtful is None else doubtful
    return None, doubtful


def _is_ahead(base: Measured, runner_up: Measured | None, background: Background) -> bool:
    """Whether a base is nearer than everybody else, and than what is usual."""
    if runner_up is None or not _above(base, runner_up):
        return False
    return base.similarity - 2 * base.standard_error > background.mean + SAME


def stands_out(measured: Measured, background: Background) -> bool | None:
    """Whether a similarity is beyond what unrelated models have; None where it may be either."""
    limit = limit_of(background)
    if measured.similarity - 2 * measured.standard_error > limit:
        return True
    return False if measured.similarity + 2 * measured.standard_error <= limit else None


def limit_of(background: Background) -> float:
    """The most that an unrelated model is taken to have."""
    return background.mean + STANDS_OUT * max(background.deviation, LEAST_DEVIATION)


def _above(one: Measured, other: Measured) -> bool | None:
    """Whether one similarity is the larger; None where that cannot be told from the estimates."""
    gap = one.similarity - other.similarity
    noise = CERTAIN * math.hypot(one.standard_error, other.standard_error)
    if gap > max(SAME, noise):
        return True
    return None if gap > SAME else False
