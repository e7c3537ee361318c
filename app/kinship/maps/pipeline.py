"""The steps from a snapshot to a map, which is not stored: distances, nearest graph, places."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from app.jobs.service import Progress
from app.kinship.clustering.distances import SimilaritySource, compare_models
from app.kinship.clustering.snapshot import Snapshot
from modelkin.core.kinship.graph_layout import connected_parts, graph_layout, neighbor_edges
from modelkin.core.similarity.distances import Distances

__all__ = ["Places", "place_models"]

STAGE: Final = "drawing"
_SAMPLED_DISTANCES: Final = 1 << 22
"""Distances that estimate the usual similarity, those of some models to all."""


@dataclass(frozen=True, slots=True)
class Places:
    """The places of a snapshot's n models.

    Attributes:
        xy: coordinates, shape ``(n, 2)``, with about one model to a unit of area.
        similarity: the source of the similarities: ``exact``, ``mixed`` or ``signature``.
        edges: the number of edges of the graph.
        parts: the number of parts of the graph that no edge joins.
    """

    xy: npt.NDArray[np.float32]
    similarity: SimilaritySource
    edges: int
    parts: int


def place_models(snapshot: Snapshot, progress: Progress) -> Places:
    """Find the places of a snapshot's models, as its plan says.

    Raises:
        JobCancelled: ``progress`` raised it, because the job was cancelled.
    """
    n, seed = len(snapshot), snapshot.plan.seed
    compared = compare_models(snapshot, progress)
    near = compared.nearest(snapshot.plan.neighbors)
    progress(0, 0, STAGE)
    ends, weights = neighbor_edges(near, _usual(compared.distances, seed))
    places = graph_layout(n, ends, weights, seed, lambda done, total: progress(done, total, STAGE))
    parts = int(connected_parts(n, ends).max()) + 1
    return Places(places, compared.similarity, len(ends), parts)


def _usual(distances: Distances, seed: int) -> float:
    """The similarity of most pairs of models: the median of a sample of them."""
    n = len(distances)
    rows = np.sort(np.random.default_rng(seed).permutation(n)[: max(1, _SAMPLED_DISTANCES // n)])
    block = 1.0 - distances.block(rows)
    return float(np.median(block[np.arange(n) != rows[:, None]]))
