"""The charts of answers: their marks, data and words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from modelkin._printing import excerpt
from modelkin.core.matching.network_order import NetworkOrder
from modelkin.errors import InvalidParameter
from modelkin.plots import arithmetic
from modelkin.plots.chart import Bars, Chart, Heat, Line, Mark, Points, Rule, Segments
from modelkin.plots.style import GREY
from modelkin.selection import select_support
from modelkin.types.kinship import Graph
from modelkin.types.lineages import Lineage
from modelkin.types.revisions import Revisions
from modelkin.types.search import Neighbors, Overlap, SimilarityMatrix

__all__ = [
    "coverage_chart",
    "drift_chart",
    "lineage_chart",
    "map_chart",
    "matrix_chart",
    "neighbors_chart",
    "stability_chart",
    "tensor_chart",
]

_MAX_BARS: Final = 40
_MAX_LABELS: Final = 30
"""The most names beside the points of a map; more would cover each other."""
_NAME_WIDTH: Final = 32
_TREE_SHARE: Final = 0.3
"""The height of the tree, as a share of the matrix below it."""
_STABLE: Final = 0.8
"""The stability below which docs/choosing.md asks for more samples."""
_RELATIONS: Final = {"base": 1, "ancestor": 1, "derivative": 2, "sibling": 3}


def neighbors_chart(found: Neighbors) -> Chart:
    """Bars of S with error bars, and a ring at the S of chance."""
    shown = found.items[:_MAX_BARS]
    of = "a query" if found.model is None else excerpt(found.model, _NAME_WIDTH)
    left = f" (the first {len(shown)} of {len(found)})" if len(shown) < len(found) else ""
    marks: list[Mark] = [
        Bars(
            tuple(each.similarity for each in shown),
            "similarity S",
            tuple(0 for _ in shown),
            tuple(each.standard_error for each in shown),
            across=True,
        )
    ]
    marks += _chance([each.expected for each in shown])
    return Chart(
        f"The models most similar to {of}{left}",
        "similarity S",
        "",
        tuple(marks),
        tuple(excerpt(each.model, _NAME_WIDTH) for each in shown),
        across=True,
        x_range=(0.0, 1.0),
        size=(7.0, 1.4 + 0.26 * max(len(shown), 3)),
    )


def _chance(expected: Sequence[float | None]) -> list[Mark]:
    known = [(value, float(at)) for at, value in enumerate(expected) if value is not None]
    if not known:
        return []
    x, y = zip(*known, strict=True)
    return [Points(x, y, "by chance", GREY, hollow=True)]


def matrix_chart(
    matrix: SimilarityMatrix, vmin: float | None = None, vmax: float | None = None
) -> Chart:
    """The matrix in the order of its tree, and the tree above it.

    Colours reach from the least to the largest value of two models, unless other ends are given.
    """
    values = matrix.values
    known = np.nan_to_num(values, nan=0.0)
    order, lines = arithmetic.tree(np.clip(1.0 - known, 0.0, None))
    n = len(order)
    highest = max(float(lines[:, :, 1].max(initial=0.0)), 1e-9)
    scale = _TREE_SHARE * n / highest
    above = lines * [1.0, -scale] + [0.0, -0.7]
    names = tuple(excerpt(matrix.models[at], _NAME_WIDTH) for at in order)
    label = "similarity S" if matrix.measure == "similarity" else "kappa"
    low, high = _ends(values, vmin, vmax)
    heat = Heat(values[np.ix_(order, order)], names, label, low, high)
    side = min(4.0 + 0.14 * n, 12.0)
    return Chart(
        f"{label[0].upper()}{label[1:]} of {n} models, near ones side by side",
        "",
        "",
        (heat, Segments(above, np.full(len(above), 0.9))),
        names,
        across=True,
        x_range=(-0.6, n - 0.4),
        y_range=(n - 0.4, -0.9 - _TREE_SHARE * n),
        square=True,
        size=(side + 2.0, side),
    )


def _ends(
    values: npt.NDArray[np.float64], vmin: float | None, vmax: float | None
) -> tuple[float, float]:
    """The values of the first and the last colour; a model's similarity to itself does not count.

    Raises:
        InvalidParameter: ``vmin`` is not below ``vmax``.
    """
    others = values[~np.eye(len(values), dtype=bool)]
    others = others[np.isfinite(others)]
    low, high = (float(others.min()), float(others.max())) if others.size else (0.0, 1.0)
    if vmin is not None and vmax is not None and not vmin < vmax:
        raise InvalidParameter(f"vmin must be below vmax, not {vmin!r} and {vmax!r}", field="vmin")
    low = low if vmin is None else vmin
    high = high if vmax is None else vmax
    if low < high:
        return low, high
    return (low, low + 0.01) if vmax is None else (high - 0.01, high)


def map_chart(graph: Graph, groups: Mapping[str, Any] | None, what: str = "group") -> Chart:
    """Points for models, similar models near each other, coloured by group.

    Args:
        graph: the models.
        groups: a group by each model's name, which decides its colour; None for one colour.
        what: the word for a group, in the legend.
    """
    row = {node.model: at for at, node in enumerate(graph.nodes)}
    edges = [(row[edge.a], row[edge.b], max(edge.similarity, 1e-3)) for edge in graph.edges]
    where = arithmetic.positions(len(row), edges)
    ends = np.array([(where[a], where[b]) for a, b, _ in edges], np.float64).reshape(-1, 2, 2)
    marks: list[Mark] = [Segments(ends, np.clip([weight for _, _, weight in edges], 0.0, 1.0))]
    names = [node.model for node in graph.nodes]
    for number, (group, members) in enumerate(_members_by_group(names, groups).items()):
        marks.append(
            Points(
                tuple(where[members, 0].tolist()),
                tuple(where[members, 1].tolist()),
                group,
                min(number, GREY) if group != "none" else GREY,
                tuple(excerpt(names[at], _NAME_WIDTH) for at in members),
                is_labelled=len(names) <= _MAX_LABELS,
            )
        )
    near = f"{graph.k} nearest" if graph.k is not None else f"S of {graph.threshold:g} or more"
    title = f"{len(names)} models, each joined to its {near}"
    if graph.k is None:
        title = f"{len(names)} models, joined from {near}"
    return Chart(title, "", "", tuple(marks), square=True, size=(7.5, 6.0), legend=what)


def _members_by_group(
    names: Sequence[str], groups: Mapping[str, Any] | None
) -> dict[str, list[int]]:
    """The members of each group, the largest first; models without a group come last."""
    members: dict[str, list[int]] = {}
    for at, name in enumerate(names):
        group = None if groups is None else groups.get(name)
        known = "" if groups is None else "none" if group in (None, -1) else excerpt(group, 24)
        members.setdefault(known, []).append(at)
    rank = sorted(members, key=lambda group: (group == "none", -len(members[group]), group))
    return {group: members[group] for group in rank}


def tensor_chart(overlap: Overlap) -> Chart:
    """Bars of S for each tensor, and the S of chance; over the depth of the network if its order is
    known, else in the one that names suggest.
    """
    if not overlap.tensors:
        raise InvalidParameter(
            "this overlap has no tensors: its space was created without a layout", field="overlap"
        )
    order = NetworkOrder.of([tensor.name for tensor in overlap.tensors])
    tensors = order.arrange(overlap.tensors)
    values = [_or_nan(tensor.similarity) for tensor in tensors]
    chance = [_or_nan(tensor.expected) for tensor in tensors]
    bars = Bars(tuple(values), "similarity S", tuple(0 for _ in values))
    ring = Points(tuple(map(float, range(len(chance)))), tuple(chance), "by chance", hollow=True)
    whole = Rule(overlap.similarity, f"all tensors: S = {overlap.similarity:.2f}", upright=False)
    names = tuple(excerpt(tensor.name, _NAME_WIDTH) for tensor in tensors)
    a, b = excerpt(overlap.a, _NAME_WIDTH), excerpt(overlap.b, _NAME_WIDTH)
    marks = (bars, ring, whole) if np.isfinite(chance).any() else (bars, whole)
    return Chart(
        f"Where {a} and {b} agree",
        "tensors, in the order of the network"
        if order.is_own
        else "tensors, as their names suggest",
        "similarity S",
        marks,
        names,
        y_range=(0.0, 1.0),
        size=(min(5.0 + 0.16 * len(names), 14.0), 4.6),
    )


def coverage_chart(importance: Any, at: float) -> Chart:
    """C(K), the least K at which it reaches ``at``, and the cap of ``select`` where it is less."""
    if not 0 < at <= 1:
        raise InvalidParameter(f"coverage must be above 0 and 1 at most, not {at!r}", field="at")
    sizes, shares = arithmetic.coverage_curve(importance)
    reached = select_support(importance, coverage=at, k_max=1.0).k
    capped = select_support(importance, coverage=at).k
    curve = Line(_floats(sizes), _floats(shares), "C(K)")
    rules = [Rule(at, f"C = {at:g}", upright=False), Rule(reached, f"K = {reached:,}")]
    if capped < reached:
        rules.append(Rule(capped, f"k_max = {capped:,}", row=1))
    return Chart(
        f"Coverage: the {reached:,} largest of {sizes[-1]:,} entries hold {at:.0%} of all",
        "K, entries kept",
        "coverage C(K)",
        (curve, *rules),
        y_range=(0.0, 1.03),
        x_log=True,
    )


def stability_chart(resamples: Sequence[Any], sizes: Sequence[int] | None, at: float) -> Chart:
    """rho(K), rho by chance, and rho at the K that has the coverage ``at``.

    rho is high at the few largest entries of most models, so its own curve seldom names a K:
    coverage does, and rho says whether the data suffice for it.
    """
    chosen, found = arithmetic.stability_curve(resamples, sizes)
    m = len(resamples[0])
    k = select_support(arithmetic.mean_importance(resamples), coverage=at, k_max=1.0).k
    _, (rho,) = arithmetic.stability_curve(resamples, [k])
    title = f"Stability: at K = {k:,}, where C = {at:g}, rho is {rho:.2f} (by chance {k / m:.2f})"
    enough = Rule(_STABLE, "below: use more samples", upright=False)
    return Chart(
        title,
        "K, entries kept",
        "stability rho(K)",
        (
            Line(_floats(chosen), _floats(found), "rho(K)", markers=True),
            Line(_floats(chosen), _floats(chosen / m), "by chance, K / M", GREY, dashed=True),
            enough,
            Rule(k, f"K = {k:,}"),
        ),
        y_range=(0.0, 1.03),
        x_log=True,
    )


def drift_chart(revisions: Revisions) -> Chart:
    """Lines of S of each revision to the revision before and to the first."""
    oldest_first = sorted(revisions, key=lambda each: each.revision)
    numbers = tuple(float(each.revision) for each in oldest_first)
    before = tuple(_or_nan(each.similarity_previous) for each in oldest_first)
    first = tuple(each.similarity_first for each in oldest_first)
    return Chart(
        f"How {excerpt(revisions.model, _NAME_WIDTH)} changed over {len(oldest_first)} revisions",
        "revision",
        "similarity S",
        (
            Line(numbers, first, f"to revision {revisions.first_revision}", 0, markers=True),
            Line(numbers, before, "to the revision before", 1, dashed=True, markers=True),
        ),
        y_range=(0.0, 1.03),
    )


def lineage_chart(found: Lineage) -> Chart:
    """Bars of S to the nearest models, coloured by relation; rules at the usual S and the limit."""
    shown = found.kin[:_MAX_BARS]
    marks: list[Mark] = [
        Bars(
            tuple(each.similarity for each in shown),
            "similarity S",
            tuple(_RELATIONS.get(each.relation or "", 0) for each in shown),
            tuple(each.standard_error for each in shown),
            across=True,
        ),
        Rule(found.usual.similarity, "usual"),
        Rule(found.limit, "stands out from here"),
    ]
    names = tuple(
        excerpt(each.model, _NAME_WIDTH) + (f" ({each.relation})" if each.relation else "")
        for each in shown
    )
    base = excerpt(found.declared_base, _NAME_WIDTH) if found.declared_base else "no base"
    verdict = found.verdict.replace("_", " ")
    return Chart(
        f"{excerpt(found.model, _NAME_WIDTH)} declares {base}: {verdict}",
        "similarity S",
        "",
        tuple(marks),
        names,
        across=True,
        x_range=(0.0, 1.0),
        size=(7.0, 1.6 + 0.26 * max(len(shown), 3)),
    )


def _or_nan(value: float | None) -> float:
    return float("nan") if value is None else value


def _floats(values: npt.NDArray[Any]) -> tuple[float, ...]:
    return tuple(float(value) for value in values)
