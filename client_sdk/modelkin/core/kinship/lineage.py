"""Rules that check a declared base against measured similarities.

Similarity has no direction, so it can contradict a declared base but never prove one. The rules ask
three questions. Is the base nearer than unrelated models? Is another model nearer? If so, does that
model lie between the two or beyond? (A model made from this one is nearer to it than the base may
be, and farther from the base than this one is.)

The first question has two answers. Where supports are selected by weights, models that share
nothing overlap by chance alone: kappa, the similarity beyond chance, decides. Gradients of
unrelated models overlap more, so S is compared with the other models of the space, and so it is
where kappa is unknown. Between its two limits, kappa says more than unrelated models have, and less
than a base and its model: other models may then speak for a base, and not against it. Both sides
are asked, so that the two say the same of each other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

from modelkin.core.similarity.background import Background

__all__ = [
    "BASE_RELATIONS",
    "MAX_CHANCE_KAPPA",
    "MIN_COPY_SIMILARITY",
    "MIN_BACKGROUND_MODELS",
    "MIN_KIN_KAPPA",
    "BaseRelation",
    "SIMILARITY_TOLERANCE",
    "Judgement",
    "Estimate",
    "LineageVerdict",
    "Reason",
    "Rival",
    "Verdict",
    "is_between",
    "judge",
    "lineage_verdict",
    "relation_of",
    "stands_out",
    "weight_of",
]

Verdict = Literal["consistent", "mismatch", "inconclusive"]
LineageVerdict = Literal[Verdict, "undeclared", "unknown_base", "cycle"]
Reason = Literal[
    "chance",
    "rival",
    "background",
    "farther",
    "kappa",
    "stands_out",
    "nearest",
    "doubt",
    "few",
    "unclear",
    "differences",
    "changed",
    "pinned",
    "lines",
]
BaseRelation: TypeAlias = Literal["finetune", "adapter", "quantized", "merge"]
"""What a publisher says that a model is of its base: the values of ``base_model_relation``."""
BASE_RELATIONS: Final[tuple[BaseRelation, ...]] = get_args(BaseRelation)

MAX_CHANCE_KAPPA = 0.1
"""The kappa below which a model shares no more with another than by chance."""
MIN_KIN_KAPPA = 0.3
"""The kappa from which on a model is no stranger, whatever other models of the space have."""
SIMILARITY_TOLERANCE = 0.05
"""Similarities that differ by no more count as equal: models made alike differ by as much."""
MIN_COPY_SIMILARITY = 0.99
"""The similarity from which on two models are one, as of files of 32 and of 16 bits. What is said
of either holds for the other, so neither speaks against the base of the other."""
MIN_STANDARD_ERRORS = 3.0
"""How many standard errors apart two estimates must be to count as different."""
MAX_LIMIT = 0.7
"""The limit of unrelated models above which a base need not stand out from them."""
MIN_SHORTFALL = 0.15
"""The distance below the centre of such a background at which a base is a stranger all the same."""
MIN_BACKGROUND_MODELS = 3
"""The least number of models in a background."""
_WEIGHTIEST: Final = ("mismatch", "unknown_base", "inconclusive", "consistent")


@dataclass(frozen=True, slots=True)
class Estimate:
    """A similarity and its standard error, 0 where it is exact.

    Attributes:
        kappa: the similarity beyond chance, where it decides on kinship: both sides are supports of
            weights in a known layout. None elsewhere.
    """

    similarity: float
    standard_error: float
    kappa: float | None = None


@dataclass(frozen=True, slots=True)
class Rival:
    """Another model that the one in question may have been made from.

    Attributes:
        to_model: the similarity of the rival to the model in question.
        to_base: the similarity of the rival to the declared base.
        base: that of the base to the model, over what the rival has too; None where that is all.
    """

    to_model: Estimate
    to_base: Estimate
    base: Estimate | None = None


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict and its reason.

    Attributes:
        verdict: also ``inconclusive`` if there are too few models to compare with.
        reason: ``"chance"``, ``"rival"``, ``"background"`` or ``"farther"`` of a mismatch;
            ``"kappa"``, ``"stands_out"`` or ``"nearest"`` of a consistent base; ``"doubt"``,
            ``"few"``, ``"unclear"``, or ``"differences"`` where supports cannot contradict a base;
            ``"changed"`` where a revision of the base that may be the one is not known any more.
        rival: the position of the rival that contradicts the base or leaves it in doubt, or None.
    """

    verdict: Verdict
    reason: Reason
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
        background: the background of unrelated models, from those that are no declared relatives;
            where kappa is between its limits, that of both models which has the higher limit.
        unrelated: whether the background is of unrelated models. If they are too few it is of all
            other models, which are declared kin: a base may be as near as those are, and it is
            enough that it is the nearest.
        runner_up: the nearest model besides the base that is not declared to be made from this one.
            Where none is known, the base itself if no other can be nearer, else the nearest model.
            With None the base counts as behind unknown ones.
    """
    if _is_kin(base) is False:
        return Judgement("mismatch", "chance")
    contradicted, doubtful = _find_rivals(base, rivals, background if unrelated else None)
    if contradicted is not None:
        return Judgement("mismatch", "rival", contradicted)
    kin = _is_kin(base) is True
    if not kin and background.models < MIN_BACKGROUND_MODELS:
        return Judgement("inconclusive", "few")
    between = is_between(base)
    if unrelated and not kin and not between and _is_behind(base, runner_up):
        against = _against(base, background)
        if against is not None:
            return Judgement("mismatch", against)
    if doubtful is not None:
        return Judgement("inconclusive", "doubt", doubtful)
    favor = _in_favor(base, runner_up, background, unrelated=unrelated)
    return Judgement("inconclusive", "unclear") if favor is None else Judgement("consistent", favor)


def lineage_verdict(
    judgement: Judgement | None, *, declared: bool, circular: bool
) -> LineageVerdict:
    """The verdict on the lineage of a model.

    Args:
        judgement: the judgement of the declared base; None where that could not be measured.
        declared: whether the model declares a base.
        circular: whether the declared bases lead back to the model.
    """
    if not declared:
        return "undeclared"
    if circular:
        return "cycle"
    return "unknown_base" if judgement is None else judgement.verdict


def weight_of(verdict: str) -> int:
    """The place of a base's verdict among those of all bases of a model: the lowest decides.

    Args:
        verdict: that of a declared base, ``unknown_base`` of one that could not be measured.
    """
    return _WEIGHTIEST.index(verdict)


def stands_out(measured: Estimate, background: Background) -> bool | None:
    """Whether a similarity is above those of unrelated models; None if that is uncertain.

    Kappa decides first, where it is known and not between its two limits.
    """
    kin = _is_kin(measured)
    if kin is not None:
        return kin
    if background.models < MIN_BACKGROUND_MODELS:
        return None
    if measured.similarity - 2 * measured.standard_error > background.limit:
        return True
    return False if measured.similarity + 2 * measured.standard_error <= background.limit else None


def is_between(measured: Estimate) -> bool:
    """Whether kappa is known, and neither shows kin nor is surely at chance."""
    return measured.kappa is not None and _is_kin(measured) is None


def _is_kin(measured: Estimate) -> bool | None:
    """Decide by kappa alone: kin, or at chance; None if it is unknown or between the two."""
    if measured.kappa is None:
        return None
    room = (1 - measured.similarity) / (1 - measured.kappa) if measured.kappa < 1 else 1.0
    error = 2 * measured.standard_error / room if room > 0 else 0.0
    if measured.kappa - error >= MIN_KIN_KAPPA:
        return True
    return False if measured.kappa + error < MAX_CHANCE_KAPPA else None


def _find_rivals(
    base: Estimate, rivals: Sequence[Rival], unrelated: Background | None
) -> tuple[int | None, int | None]:
    """The positions of the rival that contradicts the base, and of one that leaves it in doubt.

    Args:
        unrelated: the background, if it is of unrelated models. A rival that does not stand out
            from them is near by chance, and does not count.
    """
    doubtful = None
    for position, rival in enumerate(rivals):
        if _is_stranger(rival.to_model, unrelated) or _is_copy(rival.to_model):
            continue
        declared = base if rival.base is None else rival.base
        nearer = _above(rival.to_model, declared)
        if nearer is False or _above(declared, rival.to_base):
            continue  # not nearer, or beyond the model
        if nearer and _above(rival.to_base, declared):
            return position, None
        doubtful = position if doubtful is None else doubtful
    return None, doubtful


def _is_stranger(measured: Estimate, unrelated: Background | None) -> bool:
    if unrelated is None:
        return _is_kin(measured) is False
    return stands_out(measured, unrelated) is False


def _is_copy(measured: Estimate) -> bool:
    return measured.similarity - 2 * measured.standard_error >= MIN_COPY_SIMILARITY


def _is_behind(base: Estimate, runner_up: Estimate | None) -> bool:
    """Whether another model is certainly nearer than the base; also if no other is known."""
    return runner_up is None or _above(runner_up, base) is True


def _against(base: Estimate, background: Background) -> Reason | None:
    """Give the reason that a background of unrelated models has against a base, if any."""
    if background.limit <= MAX_LIMIT:
        return "background" if stands_out(base, background) is False else None
    upper = base.similarity + 2 * base.standard_error
    return "farther" if upper < background.mean - MIN_SHORTFALL else None


def _in_favor(
    base: Estimate, runner_up: Estimate | None, background: Background, *, unrelated: bool
) -> Reason | None:
    """Give the reason for a base, if any: kappa, the S of others, or that it is the nearest."""
    if _is_kin(base):
        return "kappa"
    if stands_out(base, background):
        return "stands_out"
    if is_between(base):  # which of the two is the nearest of the other differs
        return None
    tolerance = SIMILARITY_TOLERANCE if unrelated else 0.0
    if runner_up is None or not _above(base, runner_up, tolerance):
        return None
    above = base.similarity - 2 * base.standard_error > background.mean + SIMILARITY_TOLERANCE
    return "nearest" if above else None


def _above(one: Estimate, other: Estimate, tolerance: float = SIMILARITY_TOLERANCE) -> bool | None:
    """Whether the first similarity is larger; None if the estimates leave that uncertain."""
    gap = one.similarity - other.similarity
    noise = MIN_STANDARD_ERRORS * math.hypot(one.standard_error, other.standard_error)
    if gap > max(tolerance, noise):
        return True
    return None if gap > tolerance else False


def relation_of(text: str | None) -> BaseRelation | None:
    """The relation to a base that a publisher states; None for any other word."""
    said = (text or "").strip().lower()
    return next((known for known in BASE_RELATIONS if known == said), None)
