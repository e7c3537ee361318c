"""Charts of clusterings as numbers: their quality over time, and models that changed clusters."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from app.kinship.clustering.comparison import ClusteringComparison, Flow
from app.kinship.clustering.records import ClusteringContent, ClusteringRecord

__all__ = [
    "MAX_SIDE",
    "ClusterRow",
    "Dot",
    "FlowChart",
    "Panel",
    "Ribbon",
    "Side",
    "cluster_rows",
    "flow_chart",
    "history",
]

WIDTH: Final = 960.0
_PANEL: Final = 150.0
MAX_SIDE: Final = 40
"""The most clusters of one side that a flow chart shows; beyond it, the table is clearer."""
_FLOW_HEIGHT: Final = 420.0
_GAP: Final = 8.0
_LEFT, _RIGHT = 130.0, 830.0
_THICK: Final = 16.0


@dataclass(frozen=True, slots=True)
class Dot:
    """A clustering in a panel."""

    record: ClusteringRecord
    x: float
    y: float
    text: str


@dataclass(frozen=True, slots=True)
class Panel:
    """One figure of all clusterings, oldest first.

    Attributes:
        levels: lines of the axis, each with its y and its label.
        lines: points of polylines; each joins the clusterings of one selection of models.
    """

    title: str
    levels: tuple[tuple[float, str], ...]
    dots: tuple[Dot, ...]
    lines: tuple[str, ...]


def history(records: Sequence[ClusteringRecord]) -> tuple[Panel, ...]:
    """The silhouette and the number of clusters of clusterings, given newest first."""
    ordered = list(reversed(records))
    step = WIDTH / max(len(ordered) - 1, 1)
    at = {
        each.id: (WIDTH / 2 if len(ordered) == 1 else place * step)
        for place, each in enumerate(ordered)
    }

    def panel(
        title: str, low: float, high: float, ticks: Iterable[float], value: _Value, form: str
    ) -> Panel:
        def y(of: float) -> float:
            return _PANEL * (1 - (min(max(of, low), high) - low) / (high - low))

        dots = tuple(
            Dot(each, at[each.id], y(found), format(found, form))
            for each in ordered
            if (found := value(each)) is not None
        )
        levels = tuple((y(tick), f"{tick:g}") for tick in ticks)
        return Panel(title, levels, dots, _lines(dots))

    least = min((each.quality["silhouette"] or 0.0 for each in ordered), default=0.0)
    low = -1.0 if least < 0 else 0.0
    most = max((each.clusters for each in ordered), default=1)
    top = -(-max(most, 2) // 2) * 2
    return (
        panel("silhouette", low, 1, (low, (low + 1) / 2, 1), _silhouette, ".3f"),
        panel("clusters", 0, top, (0, top // 2, top), lambda each: float(each.clusters), ".0f"),
    )


_Value = Callable[[ClusteringRecord], float | None]


def _silhouette(record: ClusteringRecord) -> float | None:
    found: float | None = record.quality["silhouette"]
    return found


def _lines(dots: Iterable[Dot]) -> tuple[str, ...]:
    by_scope: dict[str, list[str]] = defaultdict(list)
    for dot in dots:
        by_scope[dot.record.scope].append(f"{dot.x:.1f},{dot.y:.1f}")
    return tuple(" ".join(points) for points in by_scope.values() if len(points) > 1)


@dataclass(frozen=True, slots=True)
class ClusterRow:
    """One cluster of a clustering.

    Attributes:
        mean: the mean S of two of its members; None for one model, or if it was not measured.
        log10_p: the decimal logarithm of the P of its weakest link; None likewise.
    """

    id: int
    size: int
    exemplar: str
    mean: float | None
    log10_p: float | None


def cluster_rows(content: ClusteringContent) -> list[ClusterRow]:
    """The clusters, largest first."""
    sizes = Counter(content.labels)
    within: tuple[float | None, ...] = content.within or (None,) * len(content.clusters)
    log10_ps = content.log10_p or (None,) * len(content.clusters)
    rows = zip(content.clusters, content.exemplars, within, log10_ps, strict=True)
    return [
        ClusterRow(
            cluster, sizes[cluster], exemplar, _mean_of_others(mean, sizes[cluster]), log10_p
        )
        for cluster, exemplar, mean, log10_p in rows
    ]


def _mean_of_others(within: float | None, size: int) -> float | None:
    """The mean S without the S = 1 that each has to itself."""
    return None if within is None or size < 2 else (within * size - 1) / (size - 1)


@dataclass(frozen=True, slots=True)
class Side:
    """A cluster as a block of a flow chart."""

    id: int
    models: int
    y: float
    height: float


@dataclass(frozen=True, slots=True)
class Ribbon:
    """The models that went from one block to another, as a path."""

    flow: Flow
    path: str


@dataclass(frozen=True, slots=True)
class FlowChart:
    """Old clusters on the left, new ones on the right, and ribbons between them."""

    old: tuple[Side, ...]
    new: tuple[Side, ...]
    ribbons: tuple[Ribbon, ...]
    left: float = _LEFT
    right: float = _RIGHT
    thick: float = _THICK
    height: float = _FLOW_HEIGHT


def flow_chart(comparison: ClusteringComparison) -> FlowChart | None:
    """The chart of a comparison; None without a common model, or of too many clusters."""
    sizes: tuple[Counter[int], Counter[int]] = (Counter(), Counter())
    for flow in comparison.flows:
        sizes[0][flow.old] += flow.models
        sizes[1][flow.new] += flow.models
    if not comparison.common or max(map(len, sizes)) > MAX_SIDE:
        return None
    scale = (_FLOW_HEIGHT - _GAP * (max(map(len, sizes)) - 1)) / comparison.common
    first = [cluster for cluster, _ in sizes[0].most_common()]
    old = _stack(first, sizes[0], scale)
    middles = _barycenters(comparison.flows, old)
    new = _stack(sorted(sizes[1], key=lambda each: (middles[each], each)), sizes[1], scale)
    ribbons = _ribbons(comparison.flows, old, new, scale)
    return FlowChart(tuple(old.values()), tuple(new.values()), ribbons)


def _stack(order: Sequence[int], sizes: Mapping[int, int], scale: float) -> dict[int, Side]:
    found, y = {}, 0.0
    for cluster in order:
        height = sizes[cluster] * scale
        found[cluster] = Side(cluster, sizes[cluster], y, height)
        y += height + _GAP
    return found


def _barycenters(flows: Iterable[Flow], old: Mapping[int, Side]) -> dict[int, float]:
    """The mean old place of the models of each new cluster: so few ribbons cross."""
    weights: dict[int, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for flow in flows:
        side = old[flow.old]
        weights[flow.new][0] += flow.models * (side.y + side.height / 2)
        weights[flow.new][1] += flow.models
    return {cluster: total / count for cluster, (total, count) in weights.items()}


def _ribbons(
    flows: Iterable[Flow], old: Mapping[int, Side], new: Mapping[int, Side], scale: float
) -> tuple[Ribbon, ...]:
    """Paths that leave each block from top to bottom in the order of where they lead."""
    leave = {cluster: side.y for cluster, side in old.items()}
    arrive = {cluster: side.y for cluster, side in new.items()}
    paths = []
    for flow in sorted(flows, key=lambda each: (old[each.old].y, new[each.new].y)):
        thick = flow.models * scale
        a, b = leave[flow.old], arrive[flow.new]
        leave[flow.old], arrive[flow.new] = a + thick, b + thick
        x0, x1 = _LEFT + _THICK, _RIGHT
        middle = (x0 + x1) / 2
        path = (
            f"M{x0:.1f},{a:.1f}C{middle:.1f},{a:.1f} {middle:.1f},{b:.1f} {x1:.1f},{b:.1f}"
            f"L{x1:.1f},{b + thick:.1f}C{middle:.1f},{b + thick:.1f} "
            f"{middle:.1f},{a + thick:.1f} {x0:.1f},{a + thick:.1f}Z"
        )
        paths.append(Ribbon(flow, path))
    return tuple(paths)
