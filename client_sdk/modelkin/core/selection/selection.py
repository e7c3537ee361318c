"""``select_support``: from an importance to the indices of its K largest positive entries.

These are the public functions. ``decision`` chooses the entries, ``entries`` reads the importance
on its device; ``modelkin.torch`` computes an importance from a model.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from modelkin.core.importance import ImportanceKind
from modelkin.core.layout import Layout
from modelkin.core.selection.decision import decide, support_of
from modelkin.core.selection.origins import prepare
from modelkin.core.selection.request import SelectionRequest
from modelkin.core.selection.rule import SelectionRule
from modelkin.core.selection.warnings import SmallSupportWarning, UnstableSupportWarning
from modelkin.core.support import Support

__all__ = [
    "Selection",
    "SelectionRule",
    "SmallSupportWarning",
    "UnstableSupportWarning",
    "select",
    "select_support",
]


@dataclass(frozen=True, slots=True)
class Selection:
    """A support with its coverage and stability.

    Attributes:
        support: the indices.
        coverage: the share of the importance's mass on them, the C(K) of Algorithm 1.
        stability: the rho(K) of Eq. 1 over the resamples; None without resamples.
        met: whether ``stability`` reaches the target; None without a target.
    """

    support: Support
    coverage: float
    stability: float | None = None
    met: bool | None = None

    @property
    def k(self) -> int:
        """K, how many indices the support has."""
        return self.support.k


def select_support(
    importance: Any,
    *,
    k: int | None = None,
    fraction: float | None = None,
    coverage: float | None = None,
    k_max: float | None = None,
    layout: Layout | None = None,
    budgets: Any = None,
    stability: float | None = None,
    resamples: Iterable[Any] | None = None,
    kind: ImportanceKind | None = None,
    base: str | None = None,
    exclude: Sequence[str] = (),
    order: Layout | None = None,
    ordered: bool = False,
) -> Support:
    """The K largest positive entries of an importance, ties to the lower index (section 3.2).

    Give one of ``k``, ``fraction``, ``coverage`` and ``budgets``. With none of them K is 5% of M
    for importance of kind ``weight`` or ``delta``, and that of ``coverage=0.8`` for all other. The
    answer is exact and does not depend on the machine or device: masses are summed as integers.

    Args:
        importance: one-dimensional floats, shape ``(M,)``, finite and not negative: a numpy array
            or a torch tensor. float32 is read without a copy; half precisions are widened, float64
            is rounded to float32.
        k: K itself, 1 to M.
        fraction: K as a share of M, in (0, 1]: ``floor(fraction * M)``, at least 1, where a float
            means the decimal that it prints as, so that 0.3 of 10 is 3.
        coverage: in (0, 1]: the smallest K whose entries sum to this share of all (Algorithm 1); a
            float means its exact binary value.
        k_max: the most that ``coverage`` may choose: a share of M as a float in (0, 1] (rounded
            like ``fraction``), or a count as an int. Default 0.2.
        layout: the layout of the importance; needed for ``budgets``, ``exclude`` and ``order``, and
            kept with the support (``Support.origin``). By default the one that a function of
            ``modelkin.torch`` attached.
        budgets: how much each tensor gives, its own largest entries: one share of every tensor as a
            float (rounded like ``fraction``), or ``{name: share or count}``, where tensors that
            are not named give nothing. K is the sum.
        stability: rho_0 in (0, 1], which needs ``resamples``. With ``coverage``, the first of K*,
            K* + 1 and K* + 2, none above ``k_max``, at which the supports of the resamples overlap
            by rho_0 on average is taken (Algorithm 1, steps 9 to 14); where none does, K* stays,
            with an :class:`UnstableSupportWarning`. With any other choice of K, K stays in any
            case.
        resamples: two or more independent estimates of the importance, shape ``(M,)`` each.
        kind: the kind of importance: ``fisher``, ``grad_moment``, ``adam``, ``weight``, ``delta``
            or ``other``; kept with the support. By default the one that a function of
            ``modelkin.torch`` attached, else it is not known.
        base: for ``delta``, the digest of the weights that differences are taken from, as
            ``modelkin.torch.weights_digest`` computes it, after a name and "@" if there is one.
        exclude: shell patterns of tensors to leave out, such as ``"*.running_*"``: indices then
            follow ``layout.without(exclude)``.
        order: a layout of the same tensors, such as that of a space: they are put in its order
            before anything is selected. The support has gaps where the importance lacks a part of
            at most a fifth of it, and K is chosen among the rest.
        ordered: whether the support keeps the octave of each index's rank, ties to the lower index:
            more neighbours of importances of gradients, and more that it shows of a client's labels
            (docs/method.md). With ``budgets``, ranks are among the entries of all tensors.

    Returns:
        K indices out of M, with what is known of their origin. Fewer, with a
        :class:`SmallSupportWarning`, where fewer entries are positive.

    Raises:
        InvalidImportance: an entry is NaN, infinite or negative, no entry is positive, or it is not
            a vector of floats; the same for a resample.
        InvalidParameter: more than one way to choose K, an argument out of range, a kind that does
            not exist, a base for another kind than delta, or a pattern without a match.
        SpaceMismatch: layout or a resample are of another number of parameters, or ``order`` has
            other tensors; names the first that differs.
    """
    request = SelectionRequest(
        k=k,
        fraction=fraction,
        coverage=coverage,
        k_max=k_max,
        layout=layout,
        budgets=budgets,
        stability=stability,
        resamples=resamples,
        kind=kind,
        base=base,
        exclude=exclude,
        order=order,
        ordered=ordered,
    )
    ready = prepare(importance, request)
    segments = decide(ready.entries, ready.request).segments
    return ready.place(support_of(segments, ready.entries.size, ready.origin, ordered=ordered))


def select(
    importance: Any,
    *,
    k: int | None = None,
    fraction: float | None = None,
    coverage: float | None = None,
    k_max: float | None = None,
    layout: Layout | None = None,
    budgets: Any = None,
    stability: float | None = None,
    resamples: Iterable[Any] | None = None,
    kind: ImportanceKind | None = None,
    base: str | None = None,
    exclude: Sequence[str] = (),
    order: Layout | None = None,
    ordered: bool = False,
) -> Selection:
    """:func:`select_support` with coverage and stability in its result.

    Arguments, warnings and errors are those of :func:`select_support`. The coverage costs up to one
    more read of the importance if K was not chosen by it.

    Returns:
        The support with its exact coverage, its stability if resamples are given, and whether that
        reaches the target.
    """
    request = SelectionRequest(
        k=k,
        fraction=fraction,
        coverage=coverage,
        k_max=k_max,
        layout=layout,
        budgets=budgets,
        stability=stability,
        resamples=resamples,
        kind=kind,
        base=base,
        exclude=exclude,
        order=order,
        ordered=ordered,
    )
    ready = prepare(importance, request)
    decision = decide(ready.entries, ready.request)
    covered = sum(s.ranking.mass_of(s.threshold) for s in decision.segments if s.threshold)
    found = support_of(decision.segments, ready.entries.size, ready.origin, ordered=ordered)
    return Selection(
        support=ready.place(found),
        coverage=covered / sum(s.ranking.mass() for s in decision.segments),
        stability=decision.stability,
        met=decision.met,
    )
