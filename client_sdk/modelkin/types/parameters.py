"""Type the keywords that jobs take beside the arguments of their methods.

At run time nothing reads them: the clients send what is given, and the service says what is wrong.
"""

from __future__ import annotations

from typing import TypedDict

from modelkin.types.vocabulary import Compare, Linkage, SimilarityChoice

__all__ = ["ClusteringParameters", "MapParameters"]


class ClusteringParameters(TypedDict, total=False):
    """The parameters of a clustering; each algorithm takes its own.

    Attributes:
        preference: for ``affinity_propagation``, how similar a model is to itself.
        damping: the damping of ``affinity_propagation``, 0.5 or more and below 1.
        n_clusters: for ``agglomerative``, how many clusters to make.
        distance_threshold: for ``agglomerative``, in place of ``n_clusters``.
        linkage: for ``agglomerative``: ``"average"``, ``"complete"`` or ``"single"``.
        resolution: for ``leiden``; higher makes more clusters.
        neighbors: for ``leiden``, the nearest neighbours in the graph.
        min_cluster_size: for ``hdbscan``, the size of the smallest cluster.
        min_samples: for ``hdbscan``; more leaves more models in no cluster.
        seed: the same seed gives the same clusters.
        similarity: what is compared: supports (``exact``) or signatures.
        compare: which blocks of data subspaces meet.
    """

    preference: float
    damping: float
    n_clusters: int
    distance_threshold: float
    linkage: Linkage
    resolution: float
    neighbors: int
    min_cluster_size: int
    min_samples: int
    seed: int
    similarity: SimilarityChoice
    compare: Compare


class MapParameters(TypedDict, total=False):
    """The parameters of a map.

    Attributes:
        neighbors: nearest neighbours of each model in the graph that is drawn.
        seed: the same seed gives the same places.
        similarity: what is compared: supports (``exact``) or signatures.
        compare: which blocks of data subspaces meet.
    """

    neighbors: int
    seed: int
    similarity: SimilarityChoice
    compare: Compare
