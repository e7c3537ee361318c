"""The content of a plot, apart from the library that draws it: marks with their data, and words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = [
    "CELL_HEIGHT",
    "PALE",
    "Bars",
    "Cells",
    "Chart",
    "Heat",
    "Line",
    "Mark",
    "Points",
    "Rule",
    "Segments",
]

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Bars:
    """Bars from 0 to their values, at the positions 0, 1, ...

    Attributes:
        values: the value of each bar; NaN for no bar.
        name: the series, as a legend shows it.
        colors: the colour of each bar, a number of the palette.
        errors: half the length of each error bar.
        across: whether bars are horizontal, the first at the top.
    """

    values: tuple[float, ...]
    name: str
    colors: tuple[int, ...]
    errors: tuple[float, ...] = ()
    across: bool = False


@dataclass(frozen=True, slots=True)
class Line:
    """Points joined by a line."""

    x: tuple[float, ...]
    y: tuple[float, ...]
    name: str
    color: int = 0
    dashed: bool = False
    markers: bool = False


@dataclass(frozen=True, slots=True)
class Rule:
    """A dashed line across the plot at one value, with its name beside it.

    Attributes:
        row: the row of a vertical rule's name, counted from the edge. Rules that may be near each
            other have their names in rows of their own.
    """

    at: float
    name: str
    upright: bool = True
    row: int = 0


@dataclass(frozen=True, slots=True)
class Points:
    """Points of one group; ``labels`` are shown beside them, or under the mouse.

    Attributes:
        hollow: whether points are rings, which do not hide marks below.
        is_labelled: whether labels are shown beside the points.
    """

    x: tuple[float, ...]
    y: tuple[float, ...]
    name: str
    color: int = 0
    labels: tuple[str, ...] = ()
    hollow: bool = False
    is_labelled: bool = False


@dataclass(frozen=True, slots=True)
class Segments:
    """Straight lines between pairs of points, with strengths from 0 to 1.

    Attributes:
        ends: two points of x and y for each line, shape ``(n, 2, 2)``.
        strengths: the strength of each line, shape ``(n,)``.
    """

    ends: Floats
    strengths: Floats


@dataclass(frozen=True, slots=True)
class Heat:
    """A square matrix, whose row 0 is at the top: cell ``[i, j]`` is centred at x = j, y = i.

    Attributes:
        low, high: the values of the first and the last colour.
    """

    values: Floats
    names: tuple[str, ...]
    label: str
    low: float = 0.0
    high: float = 1.0


@dataclass(frozen=True, slots=True)
class Cells:
    """Cells of one colour in rows, each pale and filled from its bottom up.

    Attributes:
        x: the centres.
        y: the rows, 0 at the top; a cell is as high as nine tenths of a row.
        widths: the widths, in units of x.
        shares: how far each is filled, 0 to 1.
        name: the series, as a legend shows it.
        color: a number of the palette.
        labels: shown under the mouse.
    """

    x: tuple[float, ...]
    y: tuple[float, ...]
    widths: tuple[float, ...]
    shares: tuple[float, ...]
    name: str
    color: int
    labels: tuple[str, ...]


Mark: TypeAlias = Bars | Cells | Line | Rule | Points | Segments | Heat
CELL_HEIGHT: Final = 0.9
PALE: Final = 0.3
"""The opacity of a cell where it is not filled."""


@dataclass(frozen=True, slots=True)
class Chart:
    """A plot.

    Attributes:
        title: the title, which names the subject and the value shown.
        x, y: the labels of the axes; an axis without a label is not drawn.
        marks: the marks, drawn in this order.
        names: the names of the positions 0, 1, ... of bars or of a matrix.
        across: whether the named positions are of y, from the top.
        x_range, y_range: the ends of the axes; None for those of the data.
        x_log: whether x is logarithmic.
        square: whether both axes have one scale.
        size: the width and the height in inches.
        legend: the title of the legend; empty for no legend.
    """

    title: str
    x: str
    y: str
    marks: tuple[Mark, ...]
    names: tuple[str, ...] = ()
    across: bool = False
    x_range: tuple[float, float] | None = None
    y_range: tuple[float, float] | None = None
    x_log: bool = False
    square: bool = False
    size: tuple[float, float] = (7.0, 4.2)
    legend: str = ""

    @property
    def shows_legend(self) -> bool:
        """Whether series have to be told apart; cells have a legend in any case."""
        named = [m for m in self.marks if isinstance(m, Bars | Cells | Line | Points) and m.name]
        return len(named) > 1 or any(isinstance(mark, Cells) for mark in named)

    @property
    def legend_beside(self) -> bool:
        """Whether the legend stands beside the plot, where it covers no mark."""
        return self.square or any(isinstance(mark, Cells) for mark in self.marks)
