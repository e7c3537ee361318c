"""Leiden communities (Traag, Waltman and van Eck 2019), by igraph, of a graph of neighbours.

The weight of an edge is how far its similarity exceeds the usual one. Two graphs are tried at
several resolutions: all edges above the usual similarity, and those that chance hardly makes. No
resolution suits groups of very different sizes, so the communities of a fine one are also merged,
the nearest first. The selector keeps the best result. Clusters in it whose members are unrelated
are split up.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from app.infra.extras import DISTRIBUTION
from app.infra.subprocesses import run_in_subprocess
from app.jobs.service import Progress
from app.kinship.clustering.algorithms.agglomerative import best_cut, tree
from app.kinship.clustering.algorithms.partition_selector import PartitionSelector
from modelkin.core.clustering.clustering import compact
from modelkin.core.clustering.quality import ClusterDistances
from modelkin.core.similarity.distances import Distances
from modelkin.core.similarity.nearest import Nearest
from modelkin.errors import MissingExtra

__all__ = ["cluster", "communities"]

Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int64]

STAGE: Final = "leiden"
MERGING: Final = "merging communities"
_RESOLUTIONS = (0.5, 1.0, 2.0, 4.0, 8.0)
_FINE_RESOLUTIONS = (64.0, 32.0, 16.0)
"""Resolutions that break groups up; the first that leaves few enough communities is used."""
_MAX_COMMUNITIES = 2_000
"""Communities that can be merged: the distances of all pairs are kept."""
_MODELS_PER_COMMUNITY = 5
"""Models of each community whose distances to all models are measured."""
_MEMBERS_PER_CLUSTER = 50
"""Members of a cluster whose similarity to each other is measured."""
_MAX_ITERATIONS = 100
"""The most iterations of Leiden; the first one without a change ends it, after some 2 to 20."""
_SAMPLED_DISTANCES = 1 << 22
"""Distances that estimate the usual similarity, those of some models to all."""
_UNLIKELY_DEVIATIONS = 3.0
"""Standard deviations above the usual similarity that chance hardly makes."""
_TO_DEVIATION = 1.4826
"""The standard deviation of normal values, in units of their median absolute deviation."""
_MIN_SUBPROCESS_EDGES = 200_000
"""Edges from which on igraph holds the interpreter's lock for seconds."""
_WEIGHT: Final = "weight"
_RANDOM_LOCK = threading.Lock()
"""A lock on igraph's random number generator, of which a process has one."""


def cluster(
    distances: Distances,
    near: Nearest,
    options: Mapping[str, Any],
    seed: int,
    selector: PartitionSelector,
    progress: Progress,
) -> None:
    """Pass the communities at several resolutions to the selector.

    Args:
        distances: the distances of n models, with n at least 3.
        near: the nearest neighbours of each model.
        options: the parameter ``resolution``.
        seed: the seed of Leiden, and of the sample that estimates the usual similarity.
    """
    given = options.get("resolution")
    resolutions = _RESOLUTIONS if given is None else (given,)
    usual, unlikely = _background(distances, seed)
    graphs = [_edges(near, usual, usual), _edges(near, usual, unlikely)]
    total = len(graphs) + (given is None)
    for done, graph in enumerate(graphs):
        heartbeat = partial(progress, done, total, STAGE)
        heartbeat()
        found = communities(len(distances), *graph, resolutions, seed, heartbeat)
        for resolution, labels in zip(resolutions, found, strict=True):
            selector.consider(labels, **({"resolution": resolution} if given is None else {}))
    if given is None:
        progress(total - 1, total, STAGE)
        _merge(
            distances,
            graphs[0],
            seed,
            selector,
            report=lambda done, of: progress(done, of, MERGING),
            heartbeat=partial(progress, total - 1, total, STAGE),
        )
        selector.change(partial(_without_strangers, distances, unlikely))


def _merge(
    distances: Distances,
    graph: tuple[npt.NDArray[np.int64], Floats],
    seed: int,
    selector: PartitionSelector,
    report: Callable[[int, int], None],
    heartbeat: Callable[[], None],
) -> None:
    """Pass unions of small communities to the selector, the nearest merged first."""
    for resolution in _FINE_RESOLUTIONS:
        found = communities(len(distances), *graph, (resolution,), seed, heartbeat)
        labels = compact(found[0])
        count = int(labels.max()) + 1
        if count <= _MAX_COMMUNITIES:
            break
    if not 3 <= count <= _MAX_COMMUNITIES:
        return
    order = np.random.default_rng(seed).permutation(labels.size)
    order = order[np.argsort(labels[order], kind="stable")]
    sizes = np.bincount(labels)
    place = np.arange(labels.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    apart = ClusterDistances.on(
        distances, labels, np.sort(order[place < _MODELS_PER_COMMUNITY])
    ).between()
    apart = (apart + apart.T) / 2
    np.fill_diagonal(apart, 0.0)
    unions = selector.unions(labels)

    def consider(groups: Labels, **chosen: Any) -> tuple[float, ...]:
        return unions.consider(groups, resolution=resolution, **chosen)

    best_cut(tree(apart, "average"), count, consider, report)


def _without_strangers(distances: Distances, unlikely: float, labels: Labels) -> Labels | None:
    """Single models instead of clusters whose members are as similar as any two models.

    Every model has nearest neighbours, and so a community, and the silhouette does not penalise it.
    """
    found = labels.copy()
    ends = np.cumsum(np.bincount(labels))
    parted = 0
    for members in np.split(np.argsort(labels, kind="stable"), ends[:-1]):
        some = members[:: -(-members.size // _MEMBERS_PER_CLUSTER)]
        if members.size > 1:
            apart = distances.block(some, some).sum() / (some.size * (some.size - 1))
            if 1.0 - apart < unlikely:
                found[members] = labels.size + members
                parted += 1
    return found if parted else None


def _background(distances: Distances, seed: int) -> tuple[float, float]:
    """Return the usual similarity of two models, and a similarity that chance hardly makes."""
    n = len(distances)
    rows = np.sort(np.random.default_rng(seed).permutation(n)[: max(1, _SAMPLED_DISTANCES // n)])
    block = 1.0 - distances.block(rows)
    others = block[np.arange(n) != rows[:, None]]
    usual = float(np.median(others))
    spread = _TO_DEVIATION * float(np.median(np.abs(others - usual)))
    return usual, usual + _UNLIKELY_DEVIATIONS * spread


def _edges(near: Nearest, usual: float, least: float) -> tuple[npt.NDArray[np.int64], Floats]:
    """The pairs above ``least``, each once, ``(e, 2)``, and their excess over ``usual``."""
    n, k = near.rows.shape
    ends = np.stack([np.repeat(np.arange(n), k), near.rows.ravel()], axis=1)
    similarity = 1.0 - near.distances.ravel()
    kept = similarity > least
    pairs, first = np.unique(np.sort(ends[kept], axis=1), axis=0, return_index=True)
    return pairs, similarity[kept][first] - usual


def communities(
    n: int,
    ends: npt.NDArray[np.int64],
    weights: Floats,
    resolutions: Sequence[float],
    seed: int,
    heartbeat: Callable[[], None],
) -> list[npt.NDArray[np.int64]]:
    """Find the communities at each resolution; for a large graph, in a child process.

    Args:
        n: the number of models.
        ends: the ends of the edges, shape ``(e, 2)``.
        weights: the weights of the edges, shape ``(e,)``.
        seed: the seed of each resolution.
        heartbeat: called again and again while a child computes.
    """
    if len(ends) < _MIN_SUBPROCESS_EDGES:
        return _leiden(n, ends, weights, resolutions, seed)
    return run_in_subprocess(_leiden, n, ends, weights, resolutions, seed, meanwhile=heartbeat)


def _leiden(
    n: int, ends: npt.NDArray[np.int64], weights: Floats, resolutions: Sequence[float], seed: int
) -> list[npt.NDArray[np.int64]]:
    try:
        import igraph
    except ImportError:
        raise MissingExtra("igraph", "clustering", of=DISTRIBUTION) from None
    # igraph reads pairs faster than an array, and tuples are made faster than lists.
    pairs = list(zip(ends[:, 0].tolist(), ends[:, 1].tolist(), strict=True))
    graph = igraph.Graph(n=n, edges=pairs)
    graph.es[_WEIGHT] = weights.tolist()
    found = []
    with _RANDOM_LOCK:
        try:
            for resolution in resolutions:
                igraph.set_random_number_generator(random.Random(seed))  # noqa: S311 (no secret)
                found.append(_partition(graph, resolution))
        finally:
            igraph.set_random_number_generator(random)
    return found


def _partition(graph: Any, resolution: float) -> npt.NDArray[np.int64]:
    """The communities at one resolution, once an iteration changes nothing."""
    found: list[int] | None = None
    for _ in range(_MAX_ITERATIONS):
        before = found
        found = graph.community_leiden(
            objective_function="modularity",
            weights=_WEIGHT,
            resolution=resolution,
            n_iterations=1,
            initial_membership=before,
        ).membership
        if found == before:
            break
    return np.array(found, np.int64)
