"""The arithmetic of the plots: trees of a matrix, layouts of a graph, curves that choose K."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from modelkin.core.clustering.dendrogram import dendrogram
from modelkin.core.selection.stability import stability
from modelkin.errors import InvalidParameter
from modelkin.selection import select_support

__all__ = ["MAX_NODES", "coverage_curve", "mean_importance", "positions", "stability_curve", "tree"]

Floats = npt.NDArray[np.float64]

MAX_NODES: Final = 2000
"""The most models of a map: each step of its layout compares all pairs."""
_STEPS: Final = 200
_GRAVITY: Final = 6.0
"""The strength of the pull to the centre: parts without an edge between them come near."""
_POINTS: Final = 200
_SIZES: Final = 24


def tree(distances: Floats) -> tuple[list[int], Floats]:
    """The dendrogram of average linkage.

    Args:
        distances: the distances of all pairs, shape ``(n, n)``, symmetric.

    Returns:
        The order of the leaves from left to right. And the lines of the tree, shape ``(m, 2, 2)``:
        two points of x and y each, with leaves at x = 0, 1, ... and heights as y.
    """
    found = dendrogram(distances)
    at = {place: (float(place), 0.0) for place in range(len(found.order))}
    lines = []
    for join in found.joins:
        (x0, y0), (x1, y1), top = at[join.begin], at[join.middle], join.height
        lines += [((x0, y0), (x0, top)), ((x1, y1), (x1, top)), ((x0, top), (x1, top))]
        at[join.begin] = (x0 + x1) / 2, top
    return list(found.order), np.array(lines, np.float64).reshape(-1, 2, 2)


def positions(count: int, edges: Sequence[tuple[int, int, float]]) -> Floats:
    """Place nodes in a plane, near where edges are strong. The same graph gets the same places.

    Source: Fruchterman and Reingold 1991, with a weak pull to the centre, so that parts without an
    edge between them stay in one picture.

    Args:
        count: n, the number of nodes 0 to n - 1.
        edges: two nodes and a weight above 0 each.

    Returns:
        The places, shape ``(n, 2)``, within -1 and 1.

    Raises:
        InvalidParameter: there are more nodes than a picture shows.
    """
    if count > MAX_NODES:
        raise InvalidParameter(
            f"a map has {MAX_NODES:,} models at most, this graph {count:,}: ask for the graph of "
            "some models, such as spaces.graph(space, tags=...)",
            field="graph",
        )
    turn = np.arange(count) * np.pi * (3 - np.sqrt(5))  # a sunflower, which is even and not random
    radius = np.sqrt(np.arange(count) + 0.5)
    where: Floats = np.stack([radius * np.cos(turn), radius * np.sin(turn)], axis=1)
    where /= max(float(np.abs(where).max(initial=0.0)), 1e-9)
    ends = np.array([(a, b) for a, b, _ in edges], np.int64).reshape(-1, 2)
    weights = np.array([weight for _, _, weight in edges], np.float64)
    near = np.sqrt(1.0 / max(count, 1))
    for step in range(_STEPS if count > 1 else 0):
        _move(where, ends, weights, near, 0.2 * (1 - step / _STEPS))
    where -= where.mean(axis=0) if count else 0.0
    where /= max(float(np.abs(where).max(initial=0.0)), 1e-9)
    return where


def _move(where: Floats, ends: Any, weights: Floats, near: float, reach: float) -> None:
    apart = where[:, None, :] - where[None, :, :]
    squares = (apart**2).sum(axis=2) + 1e-9
    force = (apart * (near**2 / squares)[:, :, None]).sum(axis=1) - _GRAVITY * near * where
    pull = where[ends[:, 0]] - where[ends[:, 1]]
    pull *= (np.linalg.norm(pull, axis=1) * weights / near)[:, None]
    np.subtract.at(force, ends[:, 0], pull)
    np.add.at(force, ends[:, 1], pull)
    length = np.linalg.norm(force, axis=1, keepdims=True)
    where += force / np.maximum(length, 1e-9) * np.minimum(length, reach)


def coverage_curve(importance: Any) -> tuple[npt.NDArray[np.int64], Floats]:
    """C(K), the share of all importance in its K largest entries, at up to 200 sizes K.

    Args:
        importance: an array or tensor, one-dimensional, not negative, with an entry above 0.
    """
    values = np.sort(_vector(importance))[::-1]
    total = values.sum()
    if not (len(values) and np.isfinite(total) and total > 0 and values[-1] >= 0):
        raise InvalidParameter(
            "importance must be finite and not negative, with an entry above 0", field="importance"
        )
    sizes = np.unique(np.geomspace(1, len(values), _POINTS).round().astype(np.int64))
    return sizes, values.cumsum()[sizes - 1] / total


def stability_curve(
    resamples: Sequence[Any], sizes: Sequence[int] | None = None
) -> tuple[npt.NDArray[np.int64], Floats]:
    """rho(K), how much supports of K from independent estimates have in common.

    Args:
        resamples: two or more estimates of one importance, of one length.
        sizes: the sizes K to compare at; by default up to 24, in equal ratios, up to half of M.
    """
    if len(resamples) < 2:
        raise InvalidParameter("stability needs two resamples or more", field="resamples")
    length = len(_vector(resamples[0]))
    grid = np.geomspace(1, max(length // 2, 1), _SIZES).round() if sizes is None else sizes
    chosen = np.unique(np.asarray(grid, np.int64))
    found = [stability([select_support(each, k=int(k)) for each in resamples]) for k in chosen]
    return chosen, np.array(found, np.float64)


def mean_importance(resamples: Sequence[Any]) -> Floats:
    """The mean of some estimates of one importance.

    Args:
        resamples: the estimates, all of one length.
    """
    mean: Floats = np.mean([_vector(each) for each in resamples], axis=0)
    return mean


def _vector(importance: Any) -> Floats:
    if hasattr(importance, "detach"):
        importance = importance.detach().cpu().float().numpy()
    values = np.asarray(importance, np.float64)
    if values.ndim != 1:
        raise InvalidParameter(
            f"importance must have one dimension, not {values.ndim}", field="importance"
        )
    return values
