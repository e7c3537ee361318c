"""One figure of many cells: its mean, its interval, and how two of them differ over seeds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from studies.cells import Cell
from studies.measures import Paired, mean_of, paired
from studies.settings import TUNING_SEEDS

__all__ = ["difference", "mean", "over_seeds", "seeds", "spread", "values"]


def values(cells: Sequence[Cell], row: str, column: str) -> list[float]:
    """A figure of each cell that has it, in the order of their seeds."""
    return [
        cell.figures[row][column]
        for cell in sorted(cells, key=lambda cell: cell.setting.seed)
        if column in cell.figures.get(row, {})
    ]


def mean(cells: Sequence[Cell], row: str, column: str) -> float:
    """Over the cells; not a number where none has the figure."""
    found = values(cells, row, column)
    return float(np.mean(found)) if found else float("nan")


def spread(cells: Sequence[Cell], row: str, column: str) -> str:
    """The mean with its 95% interval; empty where no cell has the figure."""
    found = values(cells, row, column)
    return mean_of(found) if found else ""


def difference(cells: Sequence[Cell], ours: str, theirs: str, column: str) -> Paired:
    """The difference of a figure between two rows, on the same seeds."""
    return paired(values(cells, ours, column), values(cells, theirs, column))


def seeds(cells: Sequence[Cell]) -> str:
    """How many cells of one split there are, in words."""
    return "one seed" if len(cells) == 1 else f"{len(cells)} seeds"


def over_seeds(cells: Sequence[Cell]) -> str:
    """The title of a column of differences."""
    one = len({cell.setting.seed for cell in cells} - {*TUNING_SEEDS}) == 1
    return "difference, one seed" if one else "difference over seeds, 95% interval"
