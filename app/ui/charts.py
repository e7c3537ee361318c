"""Charts as numbers: templates draw them as SVG, so that they are there without a script."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from app.models.catalog.records import RevisionRecord
from modelkin.core.similarity.overlap import TensorOverlap
from modelkin.core.similarity.strangers import is_at_chance, log10_p

__all__ = [
    "HEIGHT",
    "WIDTH",
    "Bar",
    "DriftChart",
    "Point",
    "TensorChart",
    "drift_chart",
    "tensor_chart",
]

WIDTH: Final = 960.0
HEIGHT: Final = 240.0
"""Units of the drawing area; the SVG scales to its place."""

_MAX_GAP: Final = 6.0
_MAX_BAR: Final = 46.0
_MAX_LISTED: Final = 5
_MIN_INDICES: Final = 8
"""Tensors with fewer indices of both models say nothing about where they differ."""


@dataclass(frozen=True, slots=True)
class Bar:
    """One tensor: its place among all, and how much the models agree in it.

    Attributes:
        x, width: the place and width of the bar.
        height: the height of S; ``chance`` is that of its mean by chance.
    """

    tensor: TensorOverlap
    x: float
    width: float
    height: float | None
    chance: float | None

    @property
    def is_faint(self) -> bool:
        """Whether it says little: of few indices."""
        return not _is_telling(self.tensor)


@dataclass(frozen=True, slots=True)
class TensorChart:
    """The overlap of two models, tensor by tensor in the order of reading.

    Attributes:
        bars: all but the whole ones.
        whole: tensors that one of the two has all of, so that chance gives the same S.
        agree: tensors in which they agree most, best first, and more than chance gives.
        differ: tensors in which they agree least, worst first.
        is_chance: whether they agree in none of many tensors by more than chance gives.
    """

    bars: tuple[Bar, ...]
    whole: tuple[TensorOverlap, ...]
    is_chance: bool
    agree: tuple[TensorOverlap, ...]
    differ: tuple[TensorOverlap, ...]


@dataclass(frozen=True, slots=True)
class Point:
    """A revision of a model, and its Jaccard indices with the previous revision and the first."""

    revision: RevisionRecord
    x: float
    first: float
    previous: float | None


@dataclass(frozen=True, slots=True)
class DriftChart:
    """The past of a model, oldest first."""

    points: tuple[Point, ...]

    @property
    def line(self) -> str:
        """The Jaccard indices with the first revision, as the points of a polyline."""
        return " ".join(f"{point.x:.1f},{point.first:.1f}" for point in self.points)


def tensor_chart(tensors: Sequence[TensorOverlap], max_bars: int) -> TensorChart:
    """Make the chart of two models' overlap by tensor.

    Args:
        tensors: the tensors, in the order of reading.
        max_bars: the most bars, for the first tensors; the most and least agreeing are chosen among
            all.
    """
    whole = tuple(each for each in tensors if _is_whole(each))
    drawn = [each for each in tensors[:max_bars] if not _is_whole(each)]
    step = WIDTH / max(len(drawn), 1)
    width = min(max(step - min(_MAX_GAP, step / 4), 0.6), _MAX_BAR)
    bars = tuple(
        Bar(
            tensor,
            x=(place + 0.5) * step - width / 2,
            width=width,
            height=_scale(tensor.similarity),
            chance=_scale(tensor.expected),
        )
        for place, tensor in enumerate(drawn)
    )
    telling = [each for each in tensors if each.kappa is not None and _is_telling(each)]
    ranked = sorted(telling, key=lambda each: each.kappa or 0.0)
    shown = min(_MAX_LISTED, len(ranked) // 2)
    best = [each for each in ranked[::-1][:shown] if _is_beyond_chance(each, len(ranked))]
    return TensorChart(
        bars,
        whole,
        is_chance=shown > 0 and not best,
        agree=tuple(best),
        differ=tuple(ranked[:shown]) if best else (),
    )


def drift_chart(revisions: Sequence[RevisionRecord]) -> DriftChart | None:
    """The chart of revisions, given newest first; None of a model that never changed."""
    if len(revisions) < 2:
        return None
    step = WIDTH / (len(revisions) - 1)
    return DriftChart(
        tuple(
            Point(
                revision,
                x=place * step,
                first=HEIGHT * (1 - revision.first.jaccard),
                previous=None if revision.previous is None else revision.previous.jaccard,
            )
            for place, revision in enumerate(reversed(revisions))
        )
    )


def _scale(value: float | None) -> float | None:
    return None if value is None else HEIGHT * min(max(value, 0.0), 1.0)


def _is_telling(tensor: TensorOverlap) -> bool:
    return tensor.a + tensor.b >= 2 * _MIN_INDICES and not _is_whole(tensor)


def _is_beyond_chance(tensor: TensorOverlap, tensors: int) -> bool:
    """Whether unrelated models have less in common in it, the best of so many tensors."""
    if tensor.similarity is None or tensor.expected is None:
        return False
    found = log10_p(tensor.similarity, tensor.expected, (max(tensor.a, 1), max(tensor.b, 1)))
    return not is_at_chance(found, tensors)


def _is_whole(tensor: TensorOverlap) -> bool:
    return max(tensor.a, tensor.b) >= tensor.size
