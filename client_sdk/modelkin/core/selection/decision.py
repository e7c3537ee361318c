"""``decide``: the entries of an importance that a request selects, as thresholds without indices.

It implements Algorithm 1: K by count, by coverage or by the budgets of tensors, and the check of
its stability. The caller turns thresholds into indices on the device of the entries: ``selection``
for a support, ``modelkin.torch.signature`` for a signature without copying them from the device.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from modelkin.core.importance import Origin
from modelkin.core.indices import index_dtype
from modelkin.core.octaves import octaves_of_bits
from modelkin.core.selection.entries import Entries, entries_of
from modelkin.core.selection.radix import Threshold
from modelkin.core.selection.ranking import Ranking
from modelkin.core.selection.request import SelectionRequest
from modelkin.core.selection.rule import SelectionRule, budgets_of, ratio
from modelkin.core.selection.stability import stability
from modelkin.core.selection.warnings import (
    SmallSupportWarning,
    UnstableSupportWarning,
    warn,
    warn_if_sparse,
)
from modelkin.core.support import Support
from modelkin.errors import InvalidImportance, InvalidParameter, SpaceMismatch

__all__ = ["Decision", "Segment", "decide", "nothing_positive", "support_of"]

MAX_EXTRA_K = 2
"""How far above K* Algorithm 1 searches for a stable K: step 10."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of the importance, all of it or one tensor, and the threshold of its selection.

    Attributes:
        begin: the first index of the stretch in the whole importance.
        ranking: ranks the entries of this stretch alone.
        threshold: in the ranking; None if no entry is selected.
    """

    begin: int
    ranking: Ranking
    threshold: Threshold | None

    @property
    def k(self) -> int:
        """How many entries are selected."""
        return self.threshold.k if self.threshold else 0

    @property
    def end(self) -> int:
        """One more than the last index of the stretch in the whole importance."""
        return self.begin + self.ranking.entries.size


@dataclass(frozen=True, slots=True)
class Decision:
    """The selected segments and their stability.

    Attributes:
        segments: in ascending order, with at least one selected entry.
        stability: the rho(K) of Eq. 1; None without resamples.
        met: whether the stability reaches the target; None without a target.
    """

    segments: tuple[Segment, ...]
    stability: float | None = None
    met: bool | None = None

    @property
    def k(self) -> int:
        """K, summed over all segments."""
        return sum(segment.k for segment in self.segments)


def decide(entries: Entries, request: SelectionRequest) -> Decision:
    """Select entries as a prepared request asks; warns and raises as ``select_support`` says."""
    target = None if request.stability is None else ratio(request.stability, "stability")
    resamples = _resamples(request, entries.size)
    by_tensor = request.budgets is not None
    segments, sizes = (_by_budgets if by_tensor else _by_rule)(entries, request)
    if not any(segment.k for segment in segments):
        raise nothing_positive(entries.size, " where budgets take some" if by_tensor else "")
    if resamples is None:
        return Decision(segments)
    return _stable(segments, sizes if target else sizes[:1], target, resamples)


Sizes = tuple[int, ...]
"""How many entries each segment of a decision selects."""


def _by_rule(
    entries: Entries, request: SelectionRequest
) -> tuple[tuple[Segment, ...], list[Sizes]]:
    """Select by count or coverage: the segment, and the sizes that Algorithm 1 may choose among."""
    rule = SelectionRule.of(
        entries.size,
        k=request.k,
        fraction=request.fraction,
        coverage=request.coverage,
        k_max=request.k_max,
        kind=request.kind,
    )
    ranking = Ranking(entries)
    if rule.coverage is not None:
        segment = Segment(0, ranking, ranking.covering(rule.coverage, rule.k))
        warn_if_sparse(segment.k, entries.size)
        last = min(segment.k + MAX_EXTRA_K, rule.k)
        return (segment,), [(k,) for k in range(segment.k, last + 1)]
    segment = Segment(0, ranking, ranking.top(rule.k))
    if 0 < segment.k < rule.k:
        warn(
            f"only {segment.k} of {entries.size} entries are positive: the support has these, "
            f"not the {rule.k} asked for",
            SmallSupportWarning,
        )
    return (segment,), [(segment.k,)]


def _by_budgets(
    entries: Entries, request: SelectionRequest
) -> tuple[tuple[Segment, ...], list[Sizes]]:
    """Select by the budgets of tensors: their segments, and their sizes as the only choice."""
    given = [n for n in ("k", "fraction", "coverage", "k_max") if getattr(request, n) is not None]
    if given:
        raise InvalidParameter(
            f"budgets choose K tensor by tensor: leave out {' and '.join(given)}", field="budgets"
        )
    budgets = budgets_of(request.layout, request.budgets, entries.size)
    try:
        segments = tuple(_top(b.begin, Ranking(entries.part(b.begin, b.end)), b.k) for b in budgets)
    except InvalidImportance:
        raise entries.refusal() from None  # names the index in the whole importance
    small = [b for b, segment in zip(budgets, segments, strict=True) if segment.k < b.k]
    if small and any(segment.k for segment in segments):
        named = ", ".join(repr(b.name) for b in small[:5]) + (", ..." if len(small) > 5 else "")
        warn(
            f"{len(small)} of {len(budgets)} tensors have fewer positive entries than their budget "
            f"({named}): the support has these, {sum(s.k for s in segments)} in all, not the "
            f"{sum(b.k for b in budgets)} asked for",
            SmallSupportWarning,
        )
    return segments, [tuple(segment.k for segment in segments)]


def _top(begin: int, ranking: Ranking, k: int) -> Segment:
    return Segment(begin, ranking, ranking.top(k))


def _stable(
    segments: tuple[Segment, ...],
    candidates: Sequence[Sizes],
    target: Fraction | None,
    resamples: Sequence[Entries],
) -> Decision:
    """Steps 9 to 14 of Algorithm 1: the first stable candidate, or else the first one."""
    again = [_Resample(j, entries, segments) for j, entries in enumerate(resamples)]
    found: list[float] = []
    for sizes in candidates:
        larger = tuple(_top(t.begin, t.ranking, k) for t, k in zip(segments, sizes, strict=True))
        if tuple(segment.k for segment in larger) != sizes:
            break  # there are no more positive entries
        found.append(stability([resample.support(sizes) for resample in again]))
        if target is None or found[-1] >= target:
            return Decision(larger, found[-1], None if target is None else True)
    tried = " and ".join(
        f"{rho:.4f} at K = {sum(sizes)}" for rho, sizes in zip(found, candidates, strict=False)
    )
    warn(
        f"the supports of the resamples overlap by {tried}, which is below the stability target: "
        f"K stays {sum(candidates[0])}",
        UnstableSupportWarning,
    )
    return Decision(segments, found[0], met=False)


class _Resample:
    """The stretches of a decision in another estimate of the importance."""

    def __init__(self, position: int, entries: Entries, segments: Sequence[Segment]) -> None:
        self._name = f"resamples[{position}]"
        self._entries = entries
        self._stretches = [(t.begin, Ranking(entries.part(t.begin, t.end))) for t in segments]

    def support(self, sizes: Sizes) -> Support:
        """The support of its largest positive entries, at most ``sizes`` of each stretch."""
        try:
            segments = [
                _top(begin, ranking, k)
                for (begin, ranking), k in zip(self._stretches, sizes, strict=True)
            ]
            if not any(segment.k for segment in segments):
                raise nothing_positive(self._entries.size)
        except InvalidImportance as error:
            raise InvalidImportance(f"{self._name}: {error}", field="resamples") from error
        return support_of(segments, self._entries.size)


def _resamples(request: SelectionRequest, size: int) -> list[Entries] | None:
    if request.resamples is None:
        if request.stability is not None:
            raise InvalidParameter(
                "a stability target needs resamples of the importance: "
                "modelkin.torch.fisher_resamples makes some",
                field="resamples",
            )
        return None
    resamples = [entries_of(resample) for resample in request.resamples]
    if len(resamples) < 2:
        raise InvalidParameter(
            f"stability compares resamples with each other: give two or more, not {len(resamples)}",
            field="resamples",
        )
    for j, resample in enumerate(resamples):
        if resample.size != size:
            raise SpaceMismatch(
                f"resamples[{j}] is of {resample.size} parameters, the importance of {size}"
            )
    return resamples


def support_of(
    segments: Iterable[Segment],
    num_parameters: int,
    origin: Origin | None = None,
    *,
    ordered: bool = False,
) -> Support:
    """The support of the selected entries, at least one in all.

    Args:
        segments: the stretches with their thresholds, in ascending order.
        num_parameters: M.
        origin: kind, layout and base of the importance; None where nothing is known.
        ordered: whether it has octaves: of the ranks among the entries of all segments.
    """
    parts, bits = [], []
    for segment in segments:
        if segment.threshold is not None:
            entries = segment.ranking.entries
            found = entries.emit(segment.threshold)
            parts.append(_shift(found, segment.begin, num_parameters))
            if ordered:
                bits.append(entries.bits(found))
    octaves = octaves_of_bits(np.concatenate(bits)) if ordered else None
    indices: Any = parts[0] if len(parts) == 1 else np.concatenate(parts)
    return Support.trusted(indices, num_parameters, origin=origin, octaves=octaves)


def _shift(indices: Any, begin: int, num_parameters: int) -> Any:
    dtype = index_dtype(num_parameters)
    return indices.astype(dtype, copy=False) + dtype.type(begin) if begin else indices


def nothing_positive(size: int, where: str = "") -> InvalidImportance:
    """The error for an importance without a positive entry to select."""
    return InvalidImportance(
        f"all {size} entries of the importance are zero{where}, and a support takes only positive "
        f"ones",
        field="importance",
    )
