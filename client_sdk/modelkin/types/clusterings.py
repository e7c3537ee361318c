"""What the client returns about clusterings: the clusters, how good they are, and newcomers.

Frozen values like those of ``modelkin.types.spaces``, named and shaped as the service's JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from modelkin.core.clustering.quality import ClusterQuality
from modelkin.types.paging import table

__all__ = [
    "Assignment",
    "Cluster",
    "ClusterQuality",
    "Clustering",
    "ClusteringInfo",
    "ClusteringPolicy",
    "Vote",
]


@dataclass(frozen=True, slots=True)
class Cluster:
    """A group of kin.

    Attributes:
        cluster: its id, which lasts from one clustering of the space to the next.
        size: how many members it has.
        exemplar: the member that is most similar to all of them.
        members: by name.
    """

    cluster: int
    size: int
    exemplar: str
    members: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ClusteringInfo:
    """A clustering, besides which model is in which cluster.

    Attributes:
        id: that of the job that made it.
        space: whose models were clustered.
        number: 1 for the first one of its space, and so on.
        algorithm: ``"affinity_propagation"``, ``"leiden"``, ``"agglomerative"`` or ``"hdbscan"``.
        parameters: as they were given, with the filters of the models.
        chosen: the parameters that the algorithm chose by itself.
        version: of the space that was clustered.
        similarity: ``"exact"``; ``"signature"``, where similarities were estimated; or ``"mixed"``.
        models: how many were clustered.
        num_clusters: how many clusters there are.
        noise: how many models are in none of them.
        quality: silhouette and more.
        previous: the id of the clustering whose ids of clusters go on in this one.
        agreement: the adjusted Rand index to that one, over the models of both.
        seconds: that it took.
    """

    id: str
    space: str
    number: int
    algorithm: str
    parameters: Mapping[str, Any] = field(hash=False)
    chosen: Mapping[str, Any] = field(hash=False)
    version: int
    similarity: str
    models: int
    num_clusters: int
    noise: int
    quality: ClusterQuality
    previous: str | None
    agreement: float | None
    seconds: float
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Clustering(ClusteringInfo):
    """A clustering: all of :class:`ClusteringInfo`, and its clusters.

    Attributes:
        labels: the id of each model's cluster, -1 where it is in none.
        clusters: the clusters, the largest first.
    """

    labels: Mapping[str, int] = field(hash=False)
    clusters: tuple[Cluster, ...]

    def to_pandas(self) -> Any:
        """A ``pandas.DataFrame`` with a row a model: ``model``, ``cluster``, ``exemplar``.

        Raises:
            MissingExtra: pandas is not installed.
        """
        exemplar_of = {cluster.cluster: cluster.exemplar for cluster in self.clusters}
        rows = [
            _Row(model, cluster, exemplar_of.get(cluster)) for model, cluster in self.labels.items()
        ]
        return table(rows, _Row)


@dataclass(frozen=True, slots=True)
class Vote:
    """A clustered model that is near to a newcomer, and its cluster.

    Attributes:
        similarity: S to the newcomer, 0 to 1.
        estimate: as in :class:`modelkin.Neighbor`.
        standard_error: of ``similarity``; 0 where it is exact.
        cluster: its cluster's id, -1 for none.
    """

    model: str
    similarity: float
    estimate: str
    standard_error: float
    cluster: int


@dataclass(frozen=True, slots=True)
class Assignment:
    """The cluster that a newcomer would be in.

    Attributes:
        clustering: the id of the clustering.
        cluster: the id of the cluster; -1 where the nearest are in none, or nobody is near.
        exemplar: the model that stands for the cluster; None for no cluster.
        share: of the votes that went to it, 0 to 1.
        similarity: S to the nearest model of the cluster; 0 where nobody is near.
        votes: of the nearest clustered models, the nearest first.
    """

    clustering: str
    cluster: int
    exemplar: str | None
    share: float
    similarity: float
    votes: tuple[Vote, ...]


@dataclass(frozen=True, slots=True)
class ClusteringPolicy:
    """When a space is clustered anew by itself, and how.

    Attributes:
        algorithm: as for ``client.cluster``; None for the one that suits the number of models.
        parameters: likewise.
        after_changes: after so many changes of the space; None for no such number.
        every_seconds: after so many seconds, if anything changed; None for never.
        debounce_seconds: once nothing has changed for so long, or ten times as long has passed.
        pending_changes: changes that the last clustering of its kind has not seen.
        last_at: when that one, which is done, was asked for; None before the first.
    """

    algorithm: str | None
    parameters: Mapping[str, Any] = field(hash=False)
    after_changes: int | None
    every_seconds: int | None
    debounce_seconds: int
    pending_changes: int
    last_at: datetime | None


@dataclass(frozen=True, slots=True)
class _Row:
    model: str
    cluster: int
    exemplar: str | None
