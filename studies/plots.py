"""Plots as SVG, made of figures alone: the same bytes for the same figures, on any machine."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

__all__ = ["Line", "Panel", "drawn"]

_WIDTH: Final = 250
_HEIGHT: Final = 200
_LEFT: Final = 50
_TOP: Final = 34
_GAP: Final = 26
_BELOW: Final = 46
_ENTRY: Final = 280
"""The width of an entry of the legend."""
_ROW: Final = 18
_FEW_POINTS: Final = 6
"""Lines of no more points show each."""
_COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b8860b", "#555555", "#56b4e9")
"""Okabe and Ito's, which the colour-blind distinguish; the yellow is darker."""
_DASHES: Final = ("", "7 3", "2 2", "9 3 2 3", "4 2", "1 3", "12 3")


@dataclass(frozen=True, slots=True)
class Line:
    """The values of one method at each x; in all panels a name has one colour.

    Attributes:
        name: in the legend.
        points: x and y, ascending by x.
    """

    name: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Panel:
    """One pair of axes.

    Attributes:
        title: above it.
        lines: the first is emphasised.
    """

    title: str
    lines: Sequence[Line]


def drawn(
    panels: Sequence[Panel],
    *,
    title: str,
    x: str,
    y: str,
    ticks: Sequence[float],
    doubling: bool = False,
) -> str:
    """Panels in a row with common axes, and one legend below.

    Args:
        panels: with a point or more in all.
        title: what is read aloud for the picture.
        x: what the horizontal axis counts.
        y: what the vertical axis is.
        ticks: of the horizontal axis, which they span.
        doubling: whether each doubling of x is as wide.
    """
    names = list(dict.fromkeys(line.name for panel in panels for line in panel.lines))
    values = [value for panel in panels for line in panel.lines for _, value in line.points]
    scale = _Scale.over(ticks, values, doubling)
    width = _LEFT + len(panels) * (_WIDTH + _GAP)
    columns = max(1, (width - _LEFT) // _ENTRY)
    rows = -(-len(names) // columns)
    height = _TOP + _HEIGHT + _BELOW + rows * _ROW
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" role="img" font-family="sans-serif" font-size="12" fill="#222">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
        f'<text x="4" y="14">{escape(y)}</text>',
    ]
    for number, panel in enumerate(panels):
        left = _LEFT + number * (_WIDTH + _GAP)
        parts += [f'<g transform="translate({left} {_TOP})">', *_axes(panel, scale, x, number == 0)]
        parts += [_path(line, names.index(line.name), scale) for line in reversed(panel.lines)]
        parts.append("</g>")
    parts += _legend(names, columns, _TOP + _HEIGHT + _BELOW)
    return "\n".join([*parts, "</svg>"]) + "\n"


@dataclass(frozen=True, slots=True)
class _Scale:
    """Where a value is in a panel; levels are in tenths."""

    ticks: Sequence[float]
    low: int
    high: int
    step: int
    doubling: bool

    @classmethod
    def over(cls, ticks: Sequence[float], values: Sequence[float], doubling: bool) -> _Scale:
        """Whole tenths around all values, or fifths where tenths are many."""
        low, high = math.floor(min(values) * 10), math.ceil(max(values) * 10)
        step = 1 if high - low <= 6 else 2
        low -= low % step
        return cls(ticks, low, max(high + high % step, low + step), step, doubling)

    def across(self, value: float) -> float:
        first, at, last = (
            math.log2(each) if self.doubling else each
            for each in (self.ticks[0], value, self.ticks[-1])
        )
        return (at - first) / (last - first) * _WIDTH

    def down(self, value: float) -> float:
        return (self.high - 10 * value) / (self.high - self.low) * _HEIGHT

    def levels(self) -> Iterator[float]:
        """Where lines across are."""
        return (tenth / 10 for tenth in range(self.low, self.high + 1, self.step))


def _axes(panel: Panel, scale: _Scale, x: str, labelled: bool) -> Iterator[str]:
    yield f'<text x="{_WIDTH / 2:.0f}" y="-8" text-anchor="middle">{escape(panel.title)}</text>'
    for level in scale.levels():
        at = scale.down(level)
        yield f'<path d="M0 {at:.1f}H{_WIDTH}" stroke="#ddd"/>'
        if labelled:
            yield f'<text x="-8" y="{at + 4:.1f}" text-anchor="end">{level:.1f}</text>'
    for tick in scale.ticks:
        at = scale.across(tick)
        yield f'<path d="M{at:.1f} {_HEIGHT}v4" stroke="#222"/>'
        yield f'<text x="{at:.1f}" y="{_HEIGHT + 17}" text-anchor="middle">{tick:g}</text>'
    yield f'<path d="M0 0V{_HEIGHT}H{_WIDTH}" fill="none" stroke="#222"/>'
    yield f'<text x="{_WIDTH / 2:.0f}" y="{_HEIGHT + 33}" text-anchor="middle">{escape(x)}</text>'


def _path(line: Line, number: int, scale: _Scale) -> str:
    at = [(f"{scale.across(a):.1f}", f"{scale.down(b):.1f}") for a, b in line.points]
    points = " ".join(",".join(point) for point in at)
    drawn_line = f'<polyline points="{points}" {_stroke(number)}/>'
    if len(at) > _FEW_POINTS:
        return drawn_line
    colour = _COLOURS[number % len(_COLOURS)]
    marks = (f'<circle cx="{a}" cy="{b}" r="3" fill="{colour}"/>' for a, b in at)
    return "".join([drawn_line, *marks])


def _stroke(number: int) -> str:
    """The first is emphasised."""
    dash = _DASHES[number % len(_DASHES)]
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    colour = _COLOURS[number % len(_COLOURS)]
    return f'fill="none" stroke="{colour}" stroke-width="{1.6 if number else 3}"{dashes}'


def _legend(names: Sequence[str], columns: int, top: int) -> Iterator[str]:
    for number, name in enumerate(names):
        left = _LEFT + number % columns * _ENTRY
        at = top + number // columns * _ROW
        yield f'<path d="M{left} {at}h34" {_stroke(number)}/>'
        yield f'<text x="{left + 42}" y="{at + 4}">{escape(name)}</text>'
