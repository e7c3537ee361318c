"""Draws charts with plotly, whose marks answer the mouse."""

from __future__ import annotations

import html
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

_PIXELS_PER_INCH = 100
_ROW_PIXELS = 20
"""The height of a row for the name of a rule, in pixels."""


def draw(chart: Chart, theme: Theme) -> Any:
    """A ``plotly.graph_objects.Figure`` of the chart.

    Raises:
        MissingExtra: plotly is not installed.
    """
    try:
        figure = importlib.import_module("plotly.graph_objects").Figure()
    except ImportError as error:
        raise MissingExtra("plotly", "plotly") from error
    for mark in chart.marks:
        _add(mark, figure, theme)
    wide, high = chart.size
    figure.update_layout(
        title={"text": _safe(chart.title), "font": {"size": 15}},
        paper_bgcolor=theme.ground,
        plot_bgcolor=theme.ground,
        font={"color": theme.ink, "size": 11},
        showlegend=chart.shows_legend,
        barmode="overlay",
        legend={"title": {"text": _safe(chart.legend)}},
        width=wide * _PIXELS_PER_INCH,
        height=high * _PIXELS_PER_INCH,
    )
    _scales(figure, chart, theme)
    return figure


def _scales(figure: Any, chart: Chart, theme: Theme) -> None:
    is_bare = not chart.x and not chart.y and not chart.names
    both = {"gridcolor": theme.faint, "zeroline": False, "visible": not is_bare}
    names = {
        "tickvals": list(range(len(chart.names))),
        "ticktext": [_safe(name) for name in chart.names],
    }
    x: dict[str, Any] = {
        **both,
        "title": _safe(chart.x),
        "showgrid": chart.across and bool(chart.x),
    }
    y: dict[str, Any] = {**both, "title": _safe(chart.y), "showgrid": not chart.across}
    if chart.names:
        (y if chart.across else x).update(names)
    if chart.across and not chart.x:
        x["visible"] = False
    if chart.x_log:
        x["type"] = "log"
    if chart.x_range is not None:
        x["range"] = list(chart.x_range)
    if chart.y_range is not None:
        y["range"] = list(chart.y_range)
    elif chart.across:
        y["range"] = [len(chart.names) - 0.4, -0.6]
    if chart.square:
        y["scaleanchor"] = "x"
    figure.update_xaxes(**x)
    figure.update_yaxes(**y)


def _safe(text: str) -> str:
    """Escape a text, because plotly reads a few HTML tags in texts, and formulas between $."""
    return html.escape(one_line(text), quote=False).replace("$", "&#36;")


@singledispatch
def _add(mark: Mark, _figure: Any, _theme: Theme) -> None:
    raise TypeError(f"no such mark: {type(mark).__name__}")


@_add.register
def _bars(mark: Bars, figure: Any, theme: Theme) -> None:
    at = list(range(len(mark.values)))
    errors = {"type": "data", "array": mark.errors, "color": theme.ink}
    colors = {"color": [PALETTE[color] for color in mark.colors]}
    values = list(mark.values)
    x, y = (values, at) if mark.across else (at, values)
    shown = {"error_x" if mark.across else "error_y": errors} if any(mark.errors) else {}
    orientation = "h" if mark.across else "v"
    figure.add_bar(x=x, y=y, name=_safe(mark.name), marker=colors, orientation=orientation, **shown)


@_add.register
def _cells(mark: Cells, figure: Any, _theme: Theme) -> None:
    how = {
        "x": list(mark.x),
        "base": [row + CELL_HEIGHT / 2 for row in mark.y],  # the axis runs downwards
        "width": list(mark.widths),
        "name": _safe(mark.name),
        "legendgroup": _safe(mark.name),
        "hovertext": [_safe(label) for label in mark.labels],
        "hoverinfo": "text",
    }
    pale = {"color": PALETTE[mark.color], "opacity": PALE, "line": {"width": 0}}
    full = {"color": PALETTE[mark.color], "line": {"width": 0}}
    heights = [-CELL_HEIGHT * share for share in mark.shares]
    filled = any(mark.shares)
    figure.add_bar(y=[-CELL_HEIGHT] * len(mark.x), marker=pale, showlegend=not filled, **how)
    if filled:
        figure.add_bar(y=heights, marker=full, showlegend=True, **how)


@_add.register
def _line(mark: Line, figure: Any, _theme: Theme) -> None:
    line = {"color": PALETTE[mark.color], "dash": "dash" if mark.dashed else "solid"}
    mode = "lines+markers" if mark.markers else "lines"
    figure.add_scatter(x=list(mark.x), y=list(mark.y), name=_safe(mark.name), mode=mode, line=line)


@_add.register
def _rule(mark: Rule, figure: Any, theme: Theme) -> None:
    add = figure.add_vline if mark.upright else figure.add_hline
    line = {"color": theme.ink, "dash": "dot", "width": 1}
    words = {"annotation_text": _safe(mark.name), "annotation_bgcolor": theme.ground}
    shift = {"annotation_yshift": -_ROW_PIXELS * mark.row} if mark.row else {}
    add(mark.at, line=line, **words, **shift)


@_add.register
def _points(mark: Points, figure: Any, theme: Theme) -> None:
    color = PALETTE[mark.color]
    figure.add_scatter(
        x=list(mark.x),
        y=list(mark.y),
        name=_safe(mark.name),
        text=[_safe(label) for label in mark.labels],
        mode="markers+text" if mark.is_labelled else "markers",
        textposition="top right",
        hoverinfo="text+name",
        marker={
            "color": theme.ink if mark.hollow else color,
            "symbol": "circle-open" if mark.hollow else "circle",
            "size": 9,
        },
    )


@_add.register
def _segments(mark: Segments, figure: Any, theme: Theme) -> None:
    gaps = np.full((len(mark.ends), 1, 2), np.nan)
    joined = np.concatenate([mark.ends, gaps], axis=1).reshape(-1, 2)
    figure.add_scatter(
        x=joined[:, 0].tolist(),
        y=joined[:, 1].tolist(),
        mode="lines",
        line={"color": theme.ink, "width": 0.8},
        opacity=0.5,
        hoverinfo="skip",
        showlegend=False,
    )


@_add.register
def _heat(mark: Heat, figure: Any, theme: Theme) -> None:
    figure.add_heatmap(
        z=mark.values.tolist(),
        colorscale=theme.scale,
        zmin=mark.low,
        zmax=mark.high,
        colorbar={"title": _safe(mark.label)},
    )
