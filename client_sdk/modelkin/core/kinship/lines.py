"""Rules that check a declared base against lines in common, whatever the layouts of the two.

Lines in common are positive evidence: chance does not explain them. That there are none proves
nothing, since a rotation, a long training or an average removes them all. So a base is contradicted
only by other models: at least half of the checkpoint's lines are theirs, they have none of the
base's, and so little as a twentieth from the base would have been seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from modelkin.core.fingerprints.anatomy import Anatomy, anatomy_of
from modelkin.core.fingerprints.comparison import MODEL_LIMIT, Comparison, chance, compare
from modelkin.core.fingerprints.fingerprint import Fingerprint
from modelkin.core.kinship.lineage import Verdict

__all__ = [
    "MOST_LINES",
    "SEEN_SHARE",
    "Finding",
    "LineJudgement",
    "judge_by_lines",
    "shares_nothing",
]

Finding = Literal["shares", "few_tensors", "related", "nothing", "few_lines", "other_source"]
"""What lines say of a declared base, see :class:`LineJudgement`."""

MOST_LINES: Final = 0.5
"""The share of a checkpoint's lines, and of its tensors, that other models must explain before they
contradict a base. Of an average of two strangers no more is found."""
SEEN_SHARE: Final = 0.05
"""The share of lines that would have been seen, where a base is said to have none of them."""
_NONE: Final = -3.0
"""The decimal logarithm of the probability from which on chance explains what two have in common.
The least of 8,612 pairs of strangers was -2.5."""
_FEW_TENSORS: Final = 0.125
"""The share of a checkpoint's tensors up to which those that are found make no base of a model."""


@dataclass(frozen=True, eq=False)
class LineJudgement:
    """What lines say of a declared base.

    Attributes:
        verdict: of the base.
        finding: why. Consistent: it ``shares`` weights with the base. Open: lines in
            ``few_tensors`` alone, as a vocabulary that both have from elsewhere; ``related``, with
            no tensor that has enough; ``nothing`` in common; or too ``few_lines`` to tell.
            Contradicted: an ``other_source`` has most of its lines, and none of the base's.
        anatomy: of the checkpoint, beside the base alone.
        comparison: of the two.
        sources: the models that contradict the base, the one with most lines first.
    """

    verdict: Verdict
    finding: Finding
    anatomy: Anatomy
    comparison: Comparison
    sources: tuple[str, ...] = ()


def judge_by_lines(
    checkpoint: Fingerprint,
    name: str,
    base: Fingerprint,
    others: Sequence[Comparison] = (),
) -> LineJudgement:
    """Judge a declared base by lines.

    Args:
        checkpoint: the fingerprint of the model that declares it.
        name: the base's name.
        base: the base's fingerprint.
        others: of the checkpoint with models that it may come from instead: none that declares the
            base or the checkpoint, or is declared by the base, and none that may be younger.
    """
    compared = compare(checkpoint, name, base)
    found = anatomy_of(checkpoint, [compared])
    if found.parents:
        verdict = found.parents[0].verdict
        if verdict == "related":
            return LineJudgement("inconclusive", "related", found, compared)
        if verdict == "reuses" or _is_in_few(compared):
            return LineJudgement("inconclusive", "few_tensors", found, compared)
        return LineJudgement("consistent", "shares", found, compared)
    if not _would_be_seen(compared.ours, compared.theirs):
        return LineJudgement("inconclusive", "few_lines", found, compared)
    sources = _explaining(compared, others) if shares_nothing(compared) else ()
    if sources:
        return LineJudgement("mismatch", "other_source", found, compared, sources)
    return LineJudgement("inconclusive", "nothing", found, compared)


def shares_nothing(found: Comparison) -> bool:
    """Whether two have no more in common than chance gives, where a little would have been seen."""
    return found.log10_p >= _NONE and _would_be_seen(found.ours, found.theirs)


def _would_be_seen(ours: Fingerprint, theirs: Fingerprint) -> bool:
    """Whether a twentieth of the lines of the smaller one would be beyond chance."""
    fewer = min(ours.distinct.size, theirs.distinct.size)
    count = int(SEEN_SHARE * fewer)
    return chance(count, ours.lines, theirs.lines, ours.scale)[1] < MODEL_LIMIT


def _is_in_few(found: Comparison) -> bool:
    tensors = sum(1 for each in found.ours.tensors if each.lines)
    return len(found.sources) <= _FEW_TENSORS * tensors


def _explaining(base: Comparison, others: Sequence[Comparison]) -> tuple[str, ...]:
    """The models that most lines and tensors of a checkpoint come from; none if they have fewer.

    Those that may have anything in common with the base do not count.
    """
    unrelated = [
        each
        for each in others
        if each.log10_p < MODEL_LIMIT
        and shares_nothing(compare(each.theirs, base.model, base.theirs))
    ]
    if not unrelated:
        return ()
    scale = max(each.ours.scale for each in unrelated)
    ours = base.ours.at(max(scale, base.ours.scale))
    covered = np.isin(ours.distinct, np.concatenate([each.keys for each in unrelated]))
    tensors = {number for each in unrelated for number in each.sources}
    compared = sum(1 for each in ours.tensors if each.lines)
    if covered.sum() < MOST_LINES * ours.distinct.size or len(tensors) < MOST_LINES * compared:
        return ()
    unrelated.sort(key=lambda each: (-each.share, each.model))
    return tuple(each.model for each in unrelated)
