"""Rules that check a declared base against measured similarities.

Similarity has no direction, so it can contradict a declared base but never prove one. The rules ask
three questions. Does the base stand out from unrelated models? Is another model nearer? If so, does
that model lie between the two or beyond? (A model made from this one is nearer to it than the base
may be, and farther from the base than this one is.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from modelkin.core.similarity.background import Background

__all__ = [
    "MIN_BACKGROUND_MODELS",
    "Judgement",
    "Estimate",
    "Rival",
    "Verdict",
    "judge",
    "limit_of",
    "stands_out",
]

Verdict = Literal["consistent", "mismatch", "inconclusive"]

MIN_Z_SCORE = 3.0
"""How many deviations above the background's centre a model stands out."""
MIN_DEVIATION = 0.02
"""The least deviation of the similarities of unrelated models."""
SIMILARITY_TOLERANCE = 0.05
"""Similarities that differ by no more count as equal: models made alike differ by as much."""
MIN_STANDARD_ERRORS = 3.0
"""How many standard errors apart two estimates must be to count as different."""
MAX_LIMIT = 0.7
"""If unrelated models may be more similar than this, a base need not stand out from them."""
MIN_BACKGROUND_MODELS = 3
"""The least number of models in a background."""


@dataclass(frozen=True, slots=True)
class Estimate:
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

    to_model: Estimate
    to_base: Estimate


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict and its reason.

    Attributes:
        verdict: also ``inconclusive`` if there are too few models to compare with.
        rival: the position of the rival that contradicts the base or leaves it in doubt, or None.
        reason: ``"rival"``, ``"doubt"``, ``"background"``, ``"stands_out"``, ``"nearest"``,
            ``"few"`` or ``"unclear"``.
    """

    verdict: Verdict
    reason: str
    rival: int | None = None


def judge(
    base: Estimate,
    rivals: Sequence[Rival],
    background: Background,
    *,
    unrelated: bool = True,
    runner_up: Estimate | None = None,
) -> Judgement:
    """Judge a declared base by its measured similarities.

    Args:
        base: the similarity of the base to the model.
        rivals: the other models nearest to the model, the nearest first, without those that are
            declared to be made from the model or from the base.
        background: of the models that are not declared relatives; a robust one.
        unrelated: whether the background is of these. If they are too few it is of all other
            models, and then a base may be as near as those are.
        runner_up: the nearest model besides the base that is not declared to be made from this one,
            if there is one.
    """
    contradicted, doubtful = _find_rivals(base, rivals, background if unrelated else None)
    if contradicted is not None:
        return Judgement("mismatch", "rival", contradicted)
    if background.models < MIN_BACKGROUND_MODELS:
        return Judgement("inconclusive", "few")
    standing, ahead = stands_out(base, background), _is_ahead(base, runner_up, background)
    if standing is False and unrelated and not ahead and limit_of(background) <= MAX_LIMIT:
        return Judgement("mismatch", "background")
    if doubtful is not None:
        return Judgement("inconclusive", "doubt", doubtful)
    if standing:
        return Judgement("consistent", "stands_out")
    if ahead:
        return Judgement("consistent", "nearest")
    return Judgement("inconclusive", "unclear")


def _find_rivals(
    base: Estimate, rivals: Sequence[Rival], unrelated: Background | None
) -> tuple[int | None, int | None]:
    """The positions of the rival that contradicts the base, and of one that leaves it in doubt.

    Args:
        unrelated: the background, if it is of unrelated models. A rival that does not stand out
            from them is near by chance, and does not count.
    """
    doubtful = None
    enough = unrelated is not None and unrelated.models >= MIN_BACKGROUND_MODELS
    for position, rival in enumerate(rivals):
        if enough and unrelated is not None and stands_out(rival.to_model, unrelated) is False:
            continue
        nearer = _above(rival.to_model, base)
        if nearer is False or _above(base, rival.to_base):
            continue  # not nearer, or beyond the model
        if nearer and _above(rival.to_base, base):
            return position, None
        doubtful = position if doubtful is None else doubtful
    return None, doubtful


def _is_ahead(base: Estimate, runner_up: Estimate | None, background: Background) -> bool:
    """Whether a base is nearer than all other models, and than the background."""
    if runner_up is None or not _above(base, runner_up):
        return False
    return base.similarity - 2 * base.standard_error > background.mean + SIMILARITY_TOLERANCE


def stands_out(measured: Estimate, background: Background) -> bool | None:
    """Whether a similarity is above those of unrelated models; None if that is uncertain."""
    limit = limit_of(background)
    if measured.similarity - 2 * measured.standard_error > limit:
        return True
    return False if measured.similarity + 2 * measured.standard_error <= limit else None


def limit_of(background: Background) -> float:
    """The largest similarity that an unrelated model may have."""
    return background.mean + MIN_Z_SCORE * max(background.deviation, MIN_DEVIATION)


def _above(one: Estimate, other: Estimate) -> bool | None:
    """Whether the first similarity is larger; None if the estimates leave that uncertain."""
    gap = one.similarity - other.similarity
    noise = MIN_STANDARD_ERRORS * math.hypot(one.standard_error, other.standard_error)
    if gap > max(SIMILARITY_TOLERANCE, noise):
        return True
    return None if gap > SIMILARITY_TOLERANCE else False
