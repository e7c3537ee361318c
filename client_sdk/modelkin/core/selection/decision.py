"""``decide``: which entries of an importance a request takes, as thresholds and not yet as indices.

It owns Algorithm 1: K by count, by coverage or by the budgets of tensors, and the check of its
stability. Indices are made where the entries lie, by whoever wants them: ``selection`` on the way
to a support, ``modelkin.torch.signature`` without their ever leaving the device.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from modelkin.core.indices import index_dtype
from modelkin.core.layout import Layout
from modelkin.core.selection.entries import Entries, entries_of
from modelkin.core.selection.radix import Threshold
from modelkin.core.selection.ranking import Ranking
from modelkin.core.selection.rule import SelectionRule, budgets_of, ratio
from modelkin.core.selection.stability import stability
from modelkin.core.selection.warnings import SmallSupportWarning, UnstableSupportWarning, warn
from modelkin.core.support import Support
from modelkin.errors import InvalidImportance, InvalidParameter, SpaceMismatch

__all__ = ["Decision", "Request", "Take", "decide", "nothing_positive", "support_of"]

NEIGHBORHOOD = 2
"""How far above K* a stable K is looked for: Algorithm 1, step 10."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The arguments of ``select_support``, which describes them, unchecked."""

    k: Any = None
    fraction: Any = None
    coverage: Any = None
    k_max: Any = None
    layout: Layout | None = None
    budgets: Any = None
    stability: Any = None
    resamples: Iterable[Any] | None = None


@dataclass(frozen=True, slots=True)
class Take:
    """What is taken of one stretch: of the whole importance, or of one tensor.

    Attributes:
        begin: where the stretch begins in the whole.
        ranking: of the stretch alone.
        threshold: in the ranking; None where nothing is taken.
    """

    begin: int
    ranking: Ranking
    threshold: Threshold | None

    @property
    def k(self) -> int:
        """How many entries it takes."""
        return self.threshold.k if self.threshold else 0

    @property
    def end(self) -> int:
        """Where the stretch ends in the whole."""
        return self.begin + self.ranking.entries.size


@dataclass(frozen=True, slots=True)
class Decision:
    """What is taken, and how stable it is.

    Attributes:
        takes: in ascending order; at least one entry in all.
        stability: the rho(K) of Eq. 1; None without resamples.
        met: whether it reaches the target; None without a target.
    """

    takes: tuple[Take, ...]
    stability: float | None = None
    met: bool | None = None

    @property
    def k(self) -> int:
        """K, over all takes."""
        return sum(take.k for take in self.takes)


def decide(entries: Entries, request: Request) -> Decision:
    """What a request takes of these entries; warns and raises as ``select_support`` says."""
    target = None if request.stability is None else ratio(request.stability, "stability")
    resamples = _resamples(request, entries.size)
    by_tensor = request.layout is not None or request.budgets is not None
    takes, sizes = (_by_budgets if by_tensor else _by_rule)(entries, request)
    if not any(take.k for take in takes):
        raise nothing_positive(entries.size, " where budgets take some" if by_tensor else "")
    if resamples is None:
        return Decision(takes)
    return _stable(takes, sizes if target else sizes[:1], target, resamples)


Sizes = tuple[int, ...]
"""How many entries each take of a decision has."""


def _by_rule(entries: Entries, request: Request) -> tuple[tuple[Take, ...], list[Sizes]]:
    """The take by count or coverage, and the sizes that Algorithm 1 may choose among."""
    rule = SelectionRule.of(
        entries.size,
        k=request.k,
        fraction=request.fraction,
        coverage=request.coverage,
        k_max=request.k_max,
    )
    ranking = Ranking(entries)
    if rule.coverage is not None:
        take = Take(0, ranking, ranking.covering(rule.coverage, rule.k))
        last = min(take.k + NEIGHBORHOOD, rule.k)
        return (take,), [(k,) for k in range(take.k, last + 1)]
    take = Take(0, ranking, ranking.top(rule.k))
    if 0 < take.k < rule.k:
        warn(
            f"only {take.k} of {entries.size} entries are positive: the support has these, "
            f"not the {rule.k} asked for",
            SmallSupportWarning,
        )
    return (take,), [(take.k,)]


def _by_budgets(entries: Entries, request: Request) -> tuple[tuple[Take, ...], list[Sizes]]:
    """The takes of all tensors that have a budget, and their sizes, the only ones to choose."""
    if request.budgets is None:
        raise InvalidParameter("a layout is for budgets: give them, or no layout", field="layout")
    given = [n for n in ("k", "fraction", "coverage", "k_max") if getattr(request, n) is not None]
    if given:
        raise InvalidParameter(
            f"budgets choose K tensor by tensor: leave out {' and '.join(given)}", field="budgets"
        )
    budgets = budgets_of(request.layout, request.budgets, entries.size)
    try:
        takes = tuple(_top(b.begin, Ranking(entries.part(b.begin, b.end)), b.k) for b in budgets)
    except InvalidImportance:
        raise entries.refusal() from None  # which knows the index in the whole
    small = [b for b, take in zip(budgets, takes, strict=True) if take.k < b.k]
    if small and any(take.k for take in takes):
        named = ", ".join(repr(b.name) for b in small[:5]) + (", ..." if len(small) > 5 else "")
        warn(
            f"{len(small)} of {len(budgets)} tensors have fewer positive entries than their budget "
            f"({named}): the support has these, {sum(take.k for take in takes)} in all, not the "
            f"{sum(b.k for b in budgets)} asked for",
            SmallSupportWarning,
        )
    return takes, [tuple(take.k for take in takes)]


def _top(begin: int, ranking: Ranking, k: int) -> Take:
    return Take(begin, ranking, ranking.top(k))


def _stable(
    takes: tuple[Take, ...],
    candidates: Sequence[Sizes],
    target: Fraction | None,
    resamples: Sequence[Entries],
) -> Decision:
    """Steps 9 to 14 of Algorithm 1: the first candidate that is stable, or else the first one."""
    again = [_Resample(j, entries, takes) for j, entries in enumerate(resamples)]
    found: list[float] = []
    for sizes in candidates:
        larger = tuple(_top(t.begin, t.ranking, k) for t, k in zip(takes, sizes, strict=True))
        if tuple(take.k for take in larger) != sizes:
            break  # no positive entry is left to add
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
    return Decision(takes, found[0], met=False)


class _Resample:
    """The same stretches as a decision's, of another estimate of the importance."""

    def __init__(self, position: int, entries: Entries, takes: Sequence[Take]) -> None:
        self._name = f"resamples[{position}]"
        self._entries = entries
        self._stretches = [(t.begin, Ranking(entries.part(t.begin, t.end))) for t in takes]

    def support(self, sizes: Sizes) -> Support:
        """Its largest entries, as many of each stretch as ``sizes`` says or as are positive."""
        try:
            takes = [
                _top(begin, ranking, k)
                for (begin, ranking), k in zip(self._stretches, sizes, strict=True)
            ]
            if not any(take.k for take in takes):
                raise nothing_positive(self._entries.size)
        except InvalidImportance as error:
            raise InvalidImportance(f"{self._name}: {error}", field="resamples") from error
        return support_of(takes, self._entries.size)


def _resamples(request: Request, size: int) -> list[Entries] | None:
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


def support_of(takes: Iterable[Take], num_parameters: int) -> Support:
    """The support of what is taken, at least one entry in all."""
    parts = [
        _shifted(take.ranking.entries.emit(take.threshold), take.begin, num_parameters)
        for take in takes
        if take.threshold is not None
    ]
    indices: Any = parts[0] if len(parts) == 1 else np.concatenate(parts)
    return Support(indices, num_parameters)


def _shifted(indices: Any, begin: int, num_parameters: int) -> Any:
    dtype = index_dtype(num_parameters)
    return indices.astype(dtype, copy=False) + dtype.type(begin) if begin else indices


def nothing_positive(size: int, where: str = "") -> InvalidImportance:
    """The error for an importance without a positive entry where some would be taken."""
    return InvalidImportance(
        f"all {size} entries of the importance are zero{where}, and a support takes only positive "
        f"ones",
        field="importance",
    )
