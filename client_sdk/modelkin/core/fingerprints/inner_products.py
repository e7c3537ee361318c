"""Inner products: what is left of a matrix whose residual stream was rotated.

A rotation mixes the entries of every line, so no key is left. It keeps the inner products of the
lines with each other. So some lines of a matrix are compared with all of its lines of that
direction, and of each the set of those that lie closest to it is taken. Signatures of these sets
are compared as those of tensors are.

It is evidence beside a verdict, and no verdict. Rows that stand for the same tokens in two models
share their meaning: of three real strangers that have 2,000 words in common, word vectors have a
kappa of .23 to .34. So tables of tokens are left out by their sides, and a few tensors say nothing.
Networks of one random seed are alike by them as they are by lines.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from math import prod
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from modelkin.core.fingerprints.lines import size_of_set
from modelkin.core.fingerprints.matrices import STRETCH, Matrix, Part, matrices, sides
from modelkin.core.fingerprints.scales import PlaceScales
from modelkin.core.fingerprints.tensor_signatures import SignatureMaker, kappa_of

__all__ = ["InnerProducts", "Points", "TensorsAlike", "inner_products", "points_of_tensor"]

_CHOSEN: Final = 32
"""Lines that are compared with all: a kappa by these is within .05 of that by every line."""
_LEAST_RATIO: Final = 1.25
"""A square matrix has no side that says of which of its lines a rotation keeps the products."""
_MOST_RATIO: Final = 8
"""Tables of tokens have more rows for each column than layers have units for each place."""
_STEP: Final = np.float32(64)
"""Entries are whole numbers of this part of their line's root mean square: so sums are exact."""
_MOST: Final = 2047
_ALIKE: Final = 0.25
"""Of 2,685 pairs of real tensors that have nothing in common the greatest kappa is .11."""
_ENOUGH: Final = 3
"""An embedding and a head may be tables of tokens, and these are two."""

Products = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Points:
    """How the lines of a tensor lie to each other.

    Attributes:
        name: of the tensor.
        points: how many lines are compared, those of its shorter length.
        signature: 128 bytes.
    """

    name: str
    points: int
    signature: bytes


@dataclass(frozen=True)
class TensorsAlike:
    """Two tensors whose lines lie to each other in the same way.

    Attributes:
        tensor: the name of one.
        other: that of the tensor of the other model that is most alike.
        kappa: how alike they are: about 1 for rotated copies, 0 for strangers.
    """

    tensor: str
    other: str
    kappa: float


@dataclass(frozen=True)
class InnerProducts:
    """Evidence that a model is another one whose residual stream was rotated; no verdict.

    Attributes:
        compared: the tensors of the first whose inner products say something: those of hidden
            units, and no square ones.
        alike: those that have a like in the other model, each with the one that is most alike.
    """

    compared: int
    alike: tuple[TensorsAlike, ...]

    @property
    def is_evidence(self) -> bool:
        """Whether so many tensors are alike that no table of tokens explains it: three or more."""
        return len(self.alike) >= _ENOUGH

    @property
    def kappa(self) -> float:
        """The mean of those that are alike; 0 where none is."""
        return sum(each.kappa for each in self.alike) / max(1, len(self.alike))

    @property
    def words(self) -> str:
        """What they say, for people."""
        if self.is_evidence:
            return "its hidden units, in its order: evidence, and no verdict"
        if self.alike:
            return f"too little: strangers may share {_ENOUGH - 1} tables of tokens"
        return "nothing"

    def to_json(self) -> dict[str, Any]:
        """All of it in JSON's types."""
        return {
            "compared": self.compared,
            "alike": [asdict(each) for each in self.alike],
            "kappa": self.kappa,
            "is_evidence": self.is_evidence,
        }


def inner_products(first: Iterable[Points], second: Iterable[Points]) -> InnerProducts:
    """Find the tensors of two models whose lines lie to each other in the same way.

    Args:
        first: the tensors of one.
        second: those of the other.
    """
    ours, theirs = list(first), dict[int, list[Points]]()
    for each in second:
        theirs.setdefault(each.points, []).append(each)
    candidates = {points: _Candidates(each) for points, each in theirs.items()}
    best = [candidates[each.points].best(each) for each in ours if each.points in candidates]
    return InnerProducts(len(ours), tuple(each for each in best if each.kappa >= _ALIKE))


class _Candidates:
    """Tensors with as many points, of which the most alike is sought."""

    def __init__(self, tensors: list[Points]) -> None:
        self._tensors = tensors
        self._signatures = np.array([[*each.signature] for each in tensors], np.uint8)

    def best(self, one: Points) -> TensorsAlike:
        """The tensor with most equal bytes; of equals one of the same name, or the first."""
        own = np.frombuffer(one.signature, np.uint8)
        equal = np.count_nonzero(self._signatures == own, axis=1)
        most = np.flatnonzero(equal == equal.max()).tolist()
        found = min((self._tensors[at] for at in most), key=lambda each: each.name != one.name)
        return TensorsAlike(
            one.name, found.name, kappa_of(one.signature, found.signature, one.points)
        )


def points_of_tensor(
    name: str, shape: tuple[int, ...], part: Part, stretch: int = STRETCH
) -> Points | None:
    """Compare the lines of a tensor with each other, those of the shorter length.

    Its values are read twice, a stretch at a time.

    Args:
        name: of the tensor.
        shape: of the tensor.
        part: reads its values.
        stretch: how many values are read at a time.

    Returns:
        None where they say nothing: the tensor has no matrices, they are square or a table, or a
        value is NaN or infinite.
    """
    shorter, points = sorted(sides(shape))
    if not 0 < _LEAST_RATIO * shorter <= points <= _MOST_RATIO * shorter:
        return None
    maker, first = SignatureMaker(prod(shape)), 0
    for matrix in matrices(shape, part, stretch):
        products = _products(matrix)
        if products is None:
            return None
        maker.take(_members(products) + np.uint64(first))
        first += products.size
    signature = maker.finish()
    return None if signature is None else Points(name, points, signature)


def _products(matrix: Matrix) -> Products | None:
    """The inner products of some lines with all others, shape ``(lines, points)``; 0 with itself.

    None where a value is not finite.
    """
    points = max(matrix.rows, matrix.columns)
    chosen = np.unique(np.linspace(0, points - 1, _CHOSEN).astype(np.int64))
    scales, rows = PlaceScales(matrix.rows, matrix.columns), list[npt.NDArray[np.float32]]()
    for begin, values in matrix.stretches():
        if not np.isfinite(values).all():
            return None
        scales.add(begin, values)
        inside = chosen[(chosen >= begin) & (chosen < begin + len(values))]
        rows.append(values[inside - begin])
    products = np.zeros((chosen.size, points))
    if matrix.rows > matrix.columns:
        reciprocals = scales.of_columns[:, np.newaxis]
        wanted = _whole(np.concatenate(rows), reciprocals[chosen])
        for begin, values in matrix.stretches():
            end = begin + len(values)
            products[:, begin:end] = wanted @ _whole(values, reciprocals[begin:end]).T
    else:
        for _, values in matrix.stretches():
            whole = _whole(values, scales.of_rows)
            products += whole[:, chosen].T @ whole
    products[np.arange(chosen.size), chosen] = 0
    return products


def _whole(values: npt.NDArray[np.float32], scales: npt.NDArray[np.float32]) -> Products:
    """Entries as whole numbers, so that no order of a sum matters."""
    scaled = values * (scales * _STEP)
    return np.clip(np.rint(scaled), -_MOST, _MOST).astype(np.float64)


def _members(products: Products) -> npt.NDArray[np.uint64]:
    """The places of the largest magnitudes of each line, among all products."""
    magnitudes = np.abs(products)
    points = products.shape[1]
    at = points - size_of_set(points)
    least = np.partition(magnitudes, at, axis=1)[:, at, np.newaxis]
    return np.flatnonzero((magnitudes >= least) & (least > 0)).astype(np.uint64)
