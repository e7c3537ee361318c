"""The clusterings that the paper tried beside hierarchical clustering: K-means, and kNN.

K-means sees points that lie as far apart as the clients do. kNN as such makes no clusters, and the
paper does not say how it is used: here it is the graph of each client's nearest ones, cut by
spectral clustering. For newcomers kNN is the vote of the nearest.

Source: DFL2G, A.2.2, which reports similar trends of the three and takes K-means.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
import numpy.typing as npt
from sklearn.cluster import KMeans, SpectralClustering
from sklearn.neighbors import kneighbors_graph

from benchmarks.dfl2g.measures import Measure
from modelkin.core.clustering.linkage import average_linkage, cut

__all__ = ["ALGORITHMS", "HIERARCHICAL", "hierarchical", "k_means", "neighbour_graph", "points"]

NEAREST: Final = 5

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


def hierarchical(measure: Measure, count: int, _: int) -> Integers:
    """So many clusters by average linkage, which draws nothing."""
    return cut(average_linkage(measure.distances), count)


def k_means(measure: Measure, count: int, seed: int) -> Integers:
    """So many clusters of least squares, the best of ten draws."""
    found = KMeans(count, n_init=10, random_state=seed).fit_predict(points(measure))
    return np.asarray(found, np.int64)


def neighbour_graph(measure: Measure, count: int, seed: int) -> Integers:
    """So many parts of the graph that joins each client to its nearest."""
    graph = kneighbors_graph(measure.distances, NEAREST, metric="precomputed").toarray()
    cutting = SpectralClustering(count, affinity="precomputed", random_state=seed)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Graph is not fully connected")  # as groups may be
        found = cutting.fit_predict((graph + graph.T) / 2)
    return np.asarray(found, np.int64)


def points(measure: Measure) -> Floats:
    """Points whose Euclidean distances are those of the clients, one a row.

    They are exact for S and for Eq. 11. Angles that no points have lose their negative part.
    """
    squares = measure.distances**2 if measure.similarity is None else 2 * measure.distances
    middle = np.eye(len(squares)) - 1 / len(squares)
    values, vectors = np.linalg.eigh(-middle @ squares @ middle / 2)
    found: Floats = vectors * np.sqrt(np.maximum(values, 0.0))
    return found


HIERARCHICAL: Final = "hierarchical"

ALGORITHMS: Final[Mapping[str, Callable[[Measure, int, int], Integers]]] = {
    HIERARCHICAL: hierarchical,
    "K-means": k_means,
    "kNN graph": neighbour_graph,
}
