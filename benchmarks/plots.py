"""The pictures of comparisons, as SVG: cost against the number of models, or of indices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import cycle
from pathlib import Path
from typing import Any

__all__ = ["Curve", "Line", "Point", "draw", "draw_curves", "draw_panels"]

_OURS = ("#8fc1ff", "#3f8ae0", "#0b3d91")
_OTHERS = (
    "#7f7f7f", "#b3541e", "#e39a3b", "#7a8b2f", "#a8b84f", "#8c4a8c", "#c48fc4", "#c23b4e",
    "#e58a97", "#2f8f83", "#d6b300",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Line:
    """One contender at several n.

    Attributes:
        name: in the legend.
        models: n, ascending.
        seconds: p50 of a query at each.
        memory: bytes of the index at each; None if unknown.
        recall: at one of them, the same for all lines.
    """

    name: str
    models: Sequence[int]
    seconds: Sequence[float]
    memory: Sequence[float | None]
    recall: float


def draw(path: Path, lines: Sequence[Line], recall_at: int) -> None:
    """Write the picture; it is the same for the same lines.

    Args:
        path: of the SVG.
        lines: in the order of the legend; those of modelkin are emphasised.
        recall_at: the n whose recall the legend shows.
    """
    matplotlib: Any = import_module("matplotlib")
    matplotlib.use("svg")
    plt: Any = import_module("matplotlib.pyplot")
    style = {"svg.hashsalt": "modelkin", "svg.fonttype": "none", "font.size": 9}
    with matplotlib.rc_context(style):
        figure, (left, right) = plt.subplots(1, 2, figsize=(11, 5), layout="constrained")
        ours, others = cycle(_OURS), cycle(_OTHERS)
        for line in lines:
            _add(line, left, right, next(ours if _is_ours(line) else others))
        for axes, title in ((left, "p50 of a query, ms"), (right, "memory of the index, MiB")):
            axes.set(xscale="log", yscale="log", xlabel="models", title=title)
            axes.set_xticks(sorted({n for line in lines for n in line.models}))
            for axis in (axes.xaxis, axes.yaxis):
                axis.set_major_formatter(lambda value, _: f"{value:,.15g}")
            axes.minorticks_off()
            axes.grid(visible=True, which="major", alpha=0.3)
            axes.spines[["top", "right"]].set_visible(False)
        handles, labels = left.get_legend_handles_labels()
        title = f"recall@10 at n = {recall_at:,} in brackets"
        where = {"loc": "outside lower center", "ncols": 3, "frameon": False}
        figure.legend(handles, labels, title=title, **where)
        figure.savefig(path, format="svg", metadata={"Date": None})
        plt.close(figure)


def _add(line: Line, left: Any, right: Any, color: str) -> None:
    own = _is_ours(line)
    style = {"color": color, "linewidth": 2.2 if own else 1.2, "marker": "o" if own else "."}
    milliseconds = [1e3 * each for each in line.seconds]
    left.plot(line.models, milliseconds, label=f"{line.name} ({line.recall:.3f})", **style)
    known = [each / 2**20 for each in line.memory if each is not None]
    if len(known) == len(line.models):
        right.plot(line.models, known, **style)


def _is_ours(line: Line) -> bool:
    return line.name.startswith("modelkin")


@dataclass(frozen=True, slots=True)
class Curve:
    """The time of one contender at several sizes.

    Attributes:
        name: in the legend; modelkin's are emphasised.
        sizes: ascending.
        seconds: of one call at each.
    """

    name: str
    sizes: Sequence[int]
    seconds: Sequence[float]


def draw_curves(path: Path, curves: Sequence[Curve], size: str, title: str) -> None:
    """Write the picture of times against a size; it is the same for the same curves.

    Args:
        path: of the SVG.
        curves: in the order of the legend.
        size: what the sizes count.
        title: what the times are of.
    """
    matplotlib: Any = import_module("matplotlib")
    matplotlib.use("svg")
    plt: Any = import_module("matplotlib.pyplot")
    style = {"svg.hashsalt": "modelkin", "svg.fonttype": "none", "font.size": 9}
    with matplotlib.rc_context(style):
        figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
        ours, others = cycle(_OURS), cycle(_OTHERS)
        for curve in curves:
            own = "modelkin" in curve.name
            axes.plot(
                curve.sizes,
                [1e3 * each for each in curve.seconds],
                label=curve.name,
                color=next(ours if own else others),
                linewidth=2.2 if own else 1.2,
                marker="o" if own else ".",
            )
        axes.set(xscale="log", yscale="log", xlabel=size, title=f"{title}, ms")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.15g}")
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.15g}")
        axes.grid(visible=True, which="major", alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        figure.legend(loc="outside lower center", ncols=2, frameon=False)
        figure.savefig(path, format="svg", metadata={"Date": None})
        plt.close(figure)


@dataclass(frozen=True, slots=True)
class Point:
    """One contender in a plane.

    Attributes:
        family: in the legend; a line joins its points. ERIS' are emphasised.
        x: better to the right.
        y: better below.
        best: whether it is on the front.
    """

    family: str
    x: float
    y: float
    best: bool


def draw_panels(path: Path, panels: Mapping[str, Sequence[Point]], x: str, y: str) -> None:
    """Write the picture of planes with their fronts; it is the same for the same points.

    Args:
        path: of the SVG.
        panels: points in the order of the legend, by title; all have the same families.
        x: the name of the horizontal axis.
        y: of the vertical one.
    """
    matplotlib: Any = import_module("matplotlib")
    matplotlib.use("svg")
    plt: Any = import_module("matplotlib.pyplot")
    style = {"svg.hashsalt": "modelkin", "svg.fonttype": "none", "font.size": 9}
    with matplotlib.rc_context(style):
        figure, panes = plt.subplots(
            1, len(panels), figsize=(11, 5.5), layout="constrained", sharey=True, squeeze=False
        )
        for axes, (title, points) in zip(panes[0], panels.items(), strict=True):
            _add_points(axes, points)
            axes.set(xlabel=x, title=title)
            axes.grid(visible=True, which="major", alpha=0.3)
            axes.spines[["top", "right"]].set_visible(False)
        panes[0][0].set_ylabel(y)
        handles, labels = panes[0][0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
        figure.savefig(path, format="svg", metadata={"Date": None})
        plt.close(figure)


def _add_points(axes: Any, points: Sequence[Point]) -> None:
    best = sorted((each.x, each.y) for each in points if each.best)
    axes.plot(
        *zip(*best, strict=True), color="#333333", linewidth=7, alpha=0.22, label="the front",
        solid_joinstyle="round",
    )  # fmt: skip
    ours, others, markers = cycle(_OURS), cycle(_OTHERS), cycle("os^DvP")
    for family in dict.fromkeys(each.family for each in points):
        own = family.startswith("ERIS")
        mine = [each for each in points if each.family == family]
        axes.plot(
            [each.x for each in mine],
            [each.y for each in mine],
            label=family,
            color=next(ours if own else others),
            linewidth=1.5 if own else 0.8,
            marker=next(markers) if own else ".",
            markersize=6 if own else 7,
        )
