"""Leiden communities (Traag, Waltman and van Eck 2019), by igraph, of a graph of neighbours.

An edge weighs by how much more similar two models are than unrelated ones are. Two graphs are
tried, one of all edges beyond the usual similarity and one of those that chance hardly makes, and
several resolutions. No resolution suits groups of very different sizes, so what a fine one finds is
also merged again, the nearest communities first. The best result is kept, and what it puts together
without being kin is taken apart.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from app.clustering.algorithms.agglomerative import best_cut, tree
from app.clustering.algorithms.partition_selector import PartitionSelector
from app.infra.subprocesses import run_in_subprocess
from app.jobs.service import Progress
from modelkin.core.clustering.clustering import compact
from modelkin.core.clustering.quality import Measured
from modelkin.core.similarity.distances import Distances
from modelkin.core.similarity.nearest import Nearest
from modelkin.errors import MissingExtra

__all__ = ["cluster"]

Floats = npt.NDArray[np.float64]

STAGE: Final = "leiden"
MERGING: Final = "merging communities"
_RESOLUTIONS = (0.5, 1.0, 2.0, 4.0, 8.0)
_FINE = (64.0, 32.0, 16.0)
"""Resolutions that break groups up: the first one that leaves few enough communities is taken."""
_COMMUNITIES = 2_000
"""Communities that are merged at most: how far each is from each is kept."""
_EACH = 5
"""Models of each community that tell how far it is from the others."""
_TOLD_BY = 50
"""Members of a cluster that tell how similar they are to each other."""
_UNTIL_SETTLED = -1
"""Iterations of Leiden: until one changes nothing."""
_SAMPLE = 1 << 22
"""Distances that tell what is usual, those of some models to all."""
_BEYOND = 3.0
"""Standard deviations above the usual similarity that chance hardly makes."""
_TO_DEVIATION = 1.4826
"""The standard deviation of normal values, in units of their median absolute deviation."""
_LONG = 200_000
"""Edges from which on igraph holds the interpreter's lock for seconds."""
_DRAWING = threading.Lock()
"""Held by whoever has set igraph's generator of random numbers, of which a process has one."""


def cluster(
    distances: Distances,
    near: Nearest,
    options: Mapping[str, Any],
    seed: int,
    judge: PartitionSelector,
    progress: Progress,
) -> None:
    """Let the judge consider what it finds.

    Args:
        distances: of n models, n from 3 on.
        near: the nearest neighbours of each.
        options: ``resolution``.
        seed: of Leiden, and of the models that tell what is usual.
    """
    given = options.get("resolution")
    resolutions = _RESOLUTIONS if given is None else (given,)
    usual, unlikely = _background(distances, seed)
    graphs = [_edges(near, usual, usual), _edges(near, usual, unlikely)]
    total = len(graphs) * len(resolutions) + (given is None)
    for number, (ends, weights) in enumerate(graphs):
        for position, resolution in enumerate(resolutions):
            done = number * len(resolutions) + position
            progress(done, total, STAGE)
            still = partial(progress, done, total, STAGE)
            labels = _communities(len(distances), ends, weights, resolution, seed, still)
            judge.consider(labels, **({"resolution": resolution} if given is None else {}))
    if given is None:
        progress(total - 1, total, STAGE)
        _merge(
            distances,
            graphs[0],
            seed,
            judge,
            report=lambda done, of: progress(done, of, MERGING),
            still=partial(progress, total - 1, total, STAGE),
        )
        _part_strangers(distances, unlikely, judge)


def _merge(
    distances: Distances,
    graph: tuple[npt.NDArray[np.int64], Floats],
    seed: int,
    judge: PartitionSelector,
    report: Callable[[int, int], None],
    still: Callable[[], None],
) -> None:
    """Have the judge consider what small communities grow to, the nearest merged first."""
    for resolution in _FINE:
        labels = compact(_communities(len(distances), *graph, resolution, seed, still))
        count = int(labels.max()) + 1
        if count <= _COMMUNITIES:
            break
    if not 3 <= count <= _COMMUNITIES:
        return
    order = np.random.default_rng(seed).permutation(labels.size)
    order = order[np.argsort(labels[order], kind="stable")]
    sizes = np.bincount(labels)
    place = np.arange(labels.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    apart = Measured.on(distances, labels, np.sort(order[place < _EACH])).between()
    apart = (apart + apart.T) / 2
    np.fill_diagonal(apart, 0.0)
    mergers = judge.mergers(labels)

    def consider(groups: npt.NDArray[np.int64], **chosen: Any) -> float:
        return mergers.consider(groups, resolution=resolution, **chosen)

    best_cut(tree(apart, "average"), count, consider, report)


def _part_strangers(distances: Distances, unlikely: float, judge: PartitionSelector) -> None:
    """Have the judge prefer models alone that are put together and are as similar as any two.

    Every model has nearest neighbours, and so a community, and to the silhouette it is the same.
    """
    best = judge.leader
    labels = best.labels.copy()
    ends = np.cumsum(np.bincount(labels))
    parted = 0
    for members in np.split(np.argsort(labels, kind="stable"), ends[:-1]):
        some = members[:: -(-members.size // _TOLD_BY)]
        if members.size > 1:
            apart = distances.block(some, some).sum() / (some.size * (some.size - 1))
            if 1.0 - apart < unlikely:
                labels[members] = labels.size + members
                parted += 1
    if parted:
        judge.prefer(labels, **best.chosen)


def _background(distances: Distances, seed: int) -> tuple[float, float]:
    """The usual similarity of two models, and one that chance hardly makes."""
    n = len(distances)
    rows = np.sort(np.random.default_rng(seed).permutation(n)[: max(1, _SAMPLE // n)])
    block = 1.0 - distances.block(rows)
    others = block[np.arange(n) != rows[:, None]]
    usual = float(np.median(others))
    spread = _TO_DEVIATION * float(np.median(np.abs(others - usual)))
    return usual, usual + _BEYOND * spread


def _edges(near: Nearest, usual: float, least: float) -> tuple[npt.NDArray[np.int64], Floats]:
    """The pairs beyond ``least``, each once, ``(e, 2)``, and by how much they are beyond usual."""
    n, k = near.rows.shape
    ends = np.stack([np.repeat(np.arange(n), k), near.rows.ravel()], axis=1)
    similarity = 1.0 - near.distances.ravel()
    kept = similarity > least
    pairs, first = np.unique(np.sort(ends[kept], axis=1), axis=0, return_index=True)
    return pairs, similarity[kept][first] - usual


def _communities(
    n: int,
    ends: npt.NDArray[np.int64],
    weights: Floats,
    resolution: float,
    seed: int,
    still: Callable[[], None],
) -> npt.NDArray[np.int64]:
    """The same wherever it is computed; ``still`` is called meanwhile, where that takes long."""
    if len(ends) < _LONG:
        return _leiden(n, ends, weights, resolution, seed)
    return run_in_subprocess(_leiden, n, ends, weights, resolution, seed, meanwhile=still)


def _leiden(
    n: int, ends: npt.NDArray[np.int64], weights: Floats, resolution: float, seed: int
) -> npt.NDArray[np.int64]:
    try:
        import igraph
    except ImportError:
        raise MissingExtra("igraph", "clustering", of=".") from None
    graph = igraph.Graph(n=n, edges=ends)
    with _DRAWING:
        igraph.set_random_number_generator(random.Random(seed))  # noqa: S311 (draws no secret)
        try:
            found = graph.community_leiden(
                objective_function="modularity",
                weights=weights,
                resolution=resolution,
                n_iterations=_UNTIL_SETTLED,
            )
        finally:
            igraph.set_random_number_generator(random)
    return np.array(found.membership, np.int64)
