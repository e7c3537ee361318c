"""Measures of matrices of similarity, for models whose kin are known."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from studies.federations import Floats

__all__ = [
    "among",
    "between",
    "chance",
    "cosines",
    "distances",
    "nearest",
    "nearest_shared",
    "of_family",
]

Pair = tuple[int, int]
Values = npt.NDArray[np.floating[Any]]


def nearest(similarity: Floats, pairs: Iterable[Pair]) -> int:
    """How often no model is nearer to the first of a pair than the second is.

    Args:
        similarity: ``(N, N)``.
        pairs: rows, a model and its parent.
    """
    return sum(1 for _ in _ties(similarity, pairs))


def nearest_shared(similarity: Floats, pairs: Iterable[Pair]) -> float:
    """As :func:`nearest`; a parent that is as near as others counts one of their number."""
    return float(sum(1 / count for count in _ties(similarity, pairs)))


def _ties(similarity: Floats, pairs: Iterable[Pair]) -> Iterator[int]:
    """How many models are as near as the parent, of each pair where no model is nearer."""
    for child, parent in pairs:
        row = similarity[child].copy()
        row[child] = -np.inf
        best = row == row.max()
        if best[parent]:
            yield int(best.sum())


def of_family(similarity: Floats, families: Sequence[str]) -> int:
    """How many models have a nearest one of their own family, which no other one equals."""
    labels = np.array(families)
    found = 0
    for row, own in enumerate(labels):
        values = similarity[row].copy()
        values[row] = -np.inf
        found += bool((labels[values == values.max()] == own).all())
    return found


def between(matrix: Floats, pairs: Iterable[Pair]) -> Floats:
    """The entries of some pairs."""
    rows, columns = np.array(list(pairs), np.intp).T
    return np.asarray(matrix[rows, columns])


def among(families: Sequence[str], *, related: bool) -> list[Pair]:
    """Each pair of models of one family, or of two."""
    rows, columns = np.triu_indices(len(families), 1)
    pairs = zip(rows.tolist(), columns.tolist(), strict=True)
    return [(a, b) for a, b in pairs if (families[a] == families[b]) == related]


def chance(similarity: Floats, kappa: Floats) -> Floats:
    """S by chance, from S and kappa = (S - chance) / (1 - chance)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return (similarity - kappa) / (1 - kappa)


def cosines(vectors: Values) -> Floats:
    """The cosines of all pairs, ``(N, N)``."""
    rows = np.asarray(vectors, np.float64)  # siblings differ in the seventh digit
    norms = np.linalg.norm(rows, axis=1)
    return np.asarray(rows @ rows.T / np.outer(norms, norms))


def distances(vectors: Values) -> Floats:
    """The Euclidean distance of all pairs with a minus, so that the nearest is the greatest."""
    rows = np.asarray(vectors, np.float64)
    return -np.asarray([np.linalg.norm(rows - row, axis=1) for row in rows])
