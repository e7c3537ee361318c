"""The chart of an anatomy as numbers: layers by kinds of tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from modelkin.core.fingerprints.anatomy import Anatomy
from modelkin.errors import InvalidParameter
from modelkin.plots.anatomies import LAYERS, anatomy_chart
from modelkin.plots.chart import CELL_HEIGHT, Cells, Chart

__all__ = ["AnatomyPicture", "Cell", "Source", "anatomy_picture"]

_WIDTH: Final = 960.0
_ROW: Final = 24.0
_LETTER: Final = 9.0
"""The room of a letter of the names of kinds, which are largest on a phone."""
_WIDEST: Final = 64.0
"""The most units of a layer: a short network does not fill the whole width."""
_TICKS: Final = 24
"""The most labels of layers."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A tensor: a pale box, filled from its bottom by the share of its lines that is found."""

    x: float
    y: float
    width: float
    height: float
    filled: float
    color: int
    text: str


@dataclass(frozen=True, slots=True)
class Source:
    """A model of the legend, with its colour."""

    color: int
    text: str


@dataclass(frozen=True, slots=True)
class AnatomyPicture:
    """The tensors of a model, by kind downwards and by layer across.

    Attributes:
        kinds: the names of the rows, with the middle of each.
        ticks: the layers that are labelled, with the middle of each.
    """

    title: str
    height: float
    cells: tuple[Cell, ...]
    kinds: tuple[tuple[float, str], ...]
    ticks: tuple[tuple[float, str], ...]
    axis: str
    sources: tuple[Source, ...]
    left: float
    width: float = _WIDTH


def anatomy_picture(found: Anatomy, name: str) -> AnatomyPicture | None:
    """The picture of an anatomy; None where no tensor can be compared."""
    try:
        chart = anatomy_chart(found, name)
    except InvalidParameter:
        return None
    assert chart.x_range is not None
    marks = [mark for mark in chart.marks if isinstance(mark, Cells)]
    low, high = chart.x_range
    left = _LETTER * max(map(len, chart.names)) + 20
    unit = min((_WIDTH - left) / (high - low), _WIDEST)
    return AnatomyPicture(
        chart.title,
        _ROW * len(chart.names),
        tuple(cell for mark in marks for cell in _cells(mark, left - low * unit, unit)),
        tuple(((row + 0.5) * _ROW, text) for row, text in enumerate(chart.names)),
        _ticks(chart, left - low * unit, unit),
        chart.x,
        tuple(Source(mark.color, mark.name) for mark in marks),
        left,
    )


def _cells(mark: Cells, zero: float, unit: float) -> list[Cell]:
    height = CELL_HEIGHT * _ROW
    return [
        Cell(
            zero + (x - width / 2) * unit,
            (y + 0.5) * _ROW - height / 2,
            width * unit,
            height,
            height * share,
            mark.color,
            text,
        )
        for x, y, width, share, text in zip(
            mark.x, mark.y, mark.widths, mark.shares, mark.labels, strict=True
        )
    ]


def _ticks(chart: Chart, zero: float, unit: float) -> tuple[tuple[float, str], ...]:
    """Labels of the layers, of some where there are many; none where their numbers have gaps."""
    if chart.x != LAYERS or chart.x_range is None:
        return ()
    layers = round(chart.x_range[1] + 0.4)
    step = max(1, -(-layers // _TICKS))
    return tuple((zero + at * unit, str(at)) for at in range(0, layers, step))
