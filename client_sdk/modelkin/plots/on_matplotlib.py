"""Draws charts with matplotlib."""

from __future__ import annotations

import importlib
from functools import singledispatch
from typing import Any

import numpy as np

from modelkin._terminal_text import one_line
from modelkin.errors import MissingExtra
from modelkin.plots.chart import (
    CELL_HEIGHT,
    PALE,
    Bars,
    Cells,
    Chart,
    Heat,
    Line,
    Mark,
    Points,
    Rule,
    Segments,
)
from modelkin.plots.style import PALETTE, Theme

__all__ = ["draw"]

_MAX_NAMES = 60
_ROW_HEIGHT = 0.06
"""The height of a row for the name of a rule, as a share of the plot's height."""


def draw(chart: Chart, theme: Theme, axes: Any = None) -> Any:
    """Draw the chart on axes, by default those of a new figure, and return the axes.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    if axes is None:
        figure, axes = _pyplot().subplots(figsize=chart.size, layout="constrained")
        figure.set_facecolor(theme.ground)
    _frame(axes, chart, theme)
    for mark in chart.marks:
        _add(mark, axes, theme)
    _scales(axes, chart)
    if chart.shows_legend:
        how = {"frameon": False, "labelcolor": theme.ink, "fontsize": 8}
        legend = axes.legend(title=chart.legend or None, title_fontsize=8, **how)
        legend.get_title().set_color(theme.ink)
        for text in legend.get_texts():
            text.set_parse_math(False)
        legend.set_loc("upper left" if chart.legend_beside else "best")
        if chart.legend_beside:
            legend.set_bbox_to_anchor((1.0, 1.0))
    return axes


def _pyplot() -> Any:
    try:
        return importlib.import_module("matplotlib.pyplot")
    except ImportError as error:
        raise MissingExtra("matplotlib", "plots") from error


def _frame(axes: Any, chart: Chart, theme: Theme) -> None:
    axes.set_facecolor(theme.ground)
    axes.set_title(
        one_line(chart.title), loc="left", color=theme.ink, fontsize=11, parse_math=False
    )
    axes.set_xlabel(chart.x, color=theme.ink)
    axes.set_ylabel(chart.y, color=theme.ink)
    axes.tick_params(colors=theme.ink, length=0, labelsize=8)
    for side, spine in axes.spines.items():
        spine.set_visible(side in {"left", "bottom"} and bool(chart.x or chart.y))
        spine.set_color(theme.faint)
    if chart.x and chart.y and not chart.square:
        axes.grid(axis="x" if chart.across else "y", color=theme.faint, linewidth=0.6)
        axes.set_axisbelow(True)
    if not chart.x and not chart.y and not chart.names:
        axes.set_xticks([])
        axes.set_yticks([])


def _scales(axes: Any, chart: Chart) -> None:
    if chart.x_log:
        axes.set_xscale("log")
    if chart.square:
        axes.set_aspect("equal")
    step = max(1, -(-len(chart.names) // _MAX_NAMES))
    at = list(range(0, len(chart.names), step))
    shown = [chart.names[position] for position in at]
    if chart.names and chart.across:
        axes.set_yticks(at, labels=shown, parse_math=False)
        if not chart.x:
            axes.set_xticks([])
    elif chart.names:
        axes.set_xticks(at, labels=shown, rotation=60, ha="right", rotation_mode="anchor")
        for label in axes.get_xticklabels():
            label.set_parse_math(False)
    if chart.x_range is not None:
        axes.set_xlim(*chart.x_range)
    if chart.y_range is not None:
        axes.set_ylim(*chart.y_range)
    elif chart.across:
        axes.set_ylim(len(chart.names) - 0.4, -0.6)


@singledispatch
def _add(mark: Mark, _axes: Any, _theme: Theme) -> None:
    raise TypeError(f"no such mark: {type(mark).__name__}")


@_add.register
def _bars(mark: Bars, axes: Any, theme: Theme) -> None:
    at = np.arange(len(mark.values))
    colors = [PALETTE[color] for color in mark.colors]
    errors = mark.errors if any(mark.errors) else None
    how = {"color": colors, "label": mark.name, "ecolor": theme.ink, "capsize": 2}
    if mark.across:
        axes.barh(at, mark.values, xerr=errors, height=0.7, **how)
    else:
        axes.bar(at, mark.values, yerr=errors, width=0.8, **how)


@_add.register
def _cells(mark: Cells, axes: Any, _theme: Theme) -> None:
    bottom = np.array(mark.y) + CELL_HEIGHT / 2  # the axis runs downwards
    how = {"bottom": bottom, "width": mark.widths, "color": PALETTE[mark.color], "linewidth": 0}
    labels = {"label": mark.name}
    filled = any(mark.shares)
    axes.bar(mark.x, -CELL_HEIGHT, alpha=PALE, **how, **({} if filled else labels))
    if filled:
        axes.bar(mark.x, -CELL_HEIGHT * np.array(mark.shares), **how, **labels)


@_add.register
def _line(mark: Line, axes: Any, _theme: Theme) -> None:
    axes.plot(
        mark.x,
        mark.y,
        color=PALETTE[mark.color],
        linestyle="--" if mark.dashed else "-",
        marker="o" if mark.markers else None,
        markersize=4,
        label=mark.name,
    )


@_add.register
def _rule(mark: Rule, axes: Any, theme: Theme) -> None:
    how = {"color": theme.ink, "linewidth": 1, "linestyle": ":"}
    words = {"color": theme.ink, "fontsize": 8, "parse_math": False, "bbox": _ground(theme)}
    if mark.upright:
        axes.axvline(mark.at, **how)
        place = axes.get_xaxis_transform()
        y = 0.01 + _ROW_HEIGHT * mark.row
        axes.text(mark.at, y, f" {mark.name}", transform=place, va="bottom", **words)
    else:
        axes.axhline(mark.at, **how)
        place = axes.get_yaxis_transform()
        axes.text(0.99, mark.at, mark.name, transform=place, ha="right", va="bottom", **words)


def _ground(theme: Theme) -> dict[str, Any]:
    """The options that put the ground of the page behind a text, to keep it legible above marks."""
    return {"facecolor": theme.ground, "edgecolor": "none", "alpha": 0.8, "pad": 0.8}


@_add.register
def _points(mark: Points, axes: Any, theme: Theme) -> None:
    color = PALETTE[mark.color]
    axes.scatter(
        mark.x,
        mark.y,
        s=36,
        facecolors=theme.ground if mark.hollow else color,
        edgecolors=theme.ink if mark.hollow else theme.ground,
        linewidths=1.0,
        label=mark.name,
        zorder=3,
    )
    if mark.is_labelled:
        for x, y, label in zip(mark.x, mark.y, mark.labels, strict=True):
            axes.annotate(
                label,
                (x, y),
                xytext=(5, 3),
                textcoords="offset points",
                color=theme.ink,
                fontsize=7,
                parse_math=False,
                bbox=_ground(theme),
                zorder=4,
            )


@_add.register
def _segments(mark: Segments, axes: Any, theme: Theme) -> None:
    lines = importlib.import_module("matplotlib.collections")
    drawn = lines.LineCollection(
        mark.ends, colors=theme.ink, alpha=0.15 + 0.65 * mark.strengths, linewidths=0.9
    )
    axes.add_collection(drawn, autolim=True)
    axes.autoscale_view()


@_add.register
def _heat(mark: Heat, axes: Any, theme: Theme) -> None:
    image = axes.imshow(mark.values, cmap=theme.scale, vmin=mark.low, vmax=mark.high)
    bar = axes.figure.colorbar(image, ax=axes, shrink=0.6)
    bar.set_label(mark.label, color=theme.ink)
    bar.ax.tick_params(colors=theme.ink, labelsize=8)
    bar.outline.set_visible(False)
