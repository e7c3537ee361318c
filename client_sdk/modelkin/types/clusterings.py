"""Clusterings of a space: clusters, quality, assignments of newcomers, and policies."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from modelkin._moments import Moment
from modelkin._printing import Printed
from modelkin.core.clustering.quality import ClusterQuality
from modelkin.errors import InvalidParameter
from modelkin.types.learngenes import LearngeneInfo
from modelkin.types.paging import table
from modelkin.types.vocabulary import ClusteringAlgorithm, Compare, Estimate, SimilaritySource

if TYPE_CHECKING:
    import pandas

__all__ = [
    "Assignment",
    "Cluster",
    "ClusterQuality",
    "Clustering",
    "ClusteringInfo",
    "ClusteringPolicy",
    "Vote",
]


Key = TypeVar("Key")


@dataclass(frozen=True, slots=True)
class Cluster:
    """A group of kin.

    Attributes:
        cluster: the cluster's id, which lasts from one clustering of the space to the next.
        size: how many members it has.
        exemplar: the member that is most similar to all of them.
        members: the names of its models.
        kappa: the mean S beyond chance of pairs of its members; None of a single model, and where
            chance is not known.
        log10_p: the decimal logarithm of the P of the weakest link that holds them together: of so
            much between unrelated models, which have a kappa of .1 at the most. 0 where only a
            number of clusters that was asked for does. None of a single model, and where chance is
            not known.
    """

    cluster: int
    size: int
    exemplar: str
    members: tuple[str, ...]
    log10_p: float | None = None
    kappa: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ClusteringInfo(Printed):
    """A clustering without its clusters.

    Attributes:
        id: that of the job that made it.
        space: whose models were clustered.
        number: 1 for the first one of its space, and so on.
        algorithm: the one that was used.
        parameters: the parameters of the request, with the filters of the models; in a listing
            without the names of ``models``.
        chosen: the parameters that the algorithm chose by itself; as ``constant_tensors`` the
            tensors that no training changed, if similarities left some out; and as ``covered`` the
            least share of the parameters over which two models were compared, if that is not 1.
        version: that of the space when it was clustered.
        similarity: whether similarities were exact, estimated from signatures, or mixed.
        models: how many were clustered.
        num_clusters: how many clusters there are.
        noise: how many models are in none of them.
        quality: silhouette and more.
        previous: the id of the clustering from which the clusters keep their ids.
        agreement: the adjusted Rand index to that clustering, over the models of both.
        seconds: how many seconds the job took.
        note: what chance made of the clusters: that some came apart, since their members are no
            nearer than unrelated models, or why that is not known; None for nothing to say.
    """

    _listed: ClassVar[tuple[str, ...]] = (
        *("number", "algorithm", "models", "num_clusters", "noise", "created_at", "id"),
    )
    _sentences: ClassVar[tuple[str, ...]] = ("note",)
    id: str
    space: str
    number: int
    algorithm: ClusteringAlgorithm
    parameters: Mapping[str, Any] = field(hash=False)
    chosen: Mapping[str, Any] = field(hash=False)
    version: int
    similarity: SimilaritySource
    models: int
    num_clusters: int
    noise: int
    quality: ClusterQuality
    previous: str | None = None
    agreement: float | None = None
    seconds: float
    created_at: Moment
    note: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Clustering(ClusteringInfo):
    """A clustering: all of :class:`ClusteringInfo`, and its clusters.

    Attributes:
        labels: the id of each model's cluster, -1 where it is in none.
        clusters: the clusters, the largest first.
    """

    labels: Mapping[str, int] = field(hash=False)
    clusters: tuple[Cluster, ...]

    def to_pandas(self) -> pandas.DataFrame:
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
        standard_error: the standard error of ``similarity``; 0 where it is exact.
        cluster: the id of the model's cluster, -1 for none.
        expected: S0, the similarity by chance, as in :class:`modelkin.Neighbor`; None of data
            subspaces, too.
        kappa: (S - S0) / (1 - S0); None likewise.
        log10_p: the decimal logarithm of the P of so much between unrelated models, which have a
            kappa of .1 at the most; None likewise.
    """

    model: str
    similarity: float
    estimate: Estimate
    standard_error: float
    cluster: int
    expected: float | None = None
    kappa: float | None = None
    log10_p: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Assignment(Printed):
    """The cluster that a newcomer would be in.

    Attributes:
        clustering: the id of the clustering.
        cluster: the id of the cluster; -1 where the nearest models are in none, or none is near
            enough to be kin.
        exemplar: the model that stands for the cluster; None for no cluster.
        share: the share of what the mean S to the ten nearest of each cluster has beyond the 11th
            nearest model, 0 to 1; of the votes for data subspaces. 0 for no cluster.
        similarity: S to the nearest model of the cluster, or of all where it is in none; None where
            it shares nothing with any.
        votes: the votes of the nearest clustered models, the nearest first.
        margin: how much nearer the cluster is than the next, 0 to 1: by squared distances to their
            centroids for data subspaces, else its share less that of the next.
        compare: which blocks of data subspaces met; None for supports.
        learngene: the newest that was published for the cluster, or for the whole space where
            there is no cluster; None without one.
        mean_similarity: the mean S to the ten nearest members of the nearest cluster, also where
            the newcomer is in none; None where no cluster is near at all.
        within: what the members of that cluster have among themselves: the mean S of their pairs,
            as far as the newcomer's K allows it. None where it is not known.
        nearest_members: the names of those ten, the nearest first; empty for no cluster.
        reason: why the newcomer is in no cluster; None where it is in one.
        note: a doubt where it is placed, but much less like the members than they are like each
            other.
        constant_tensors: the tensors that no training changed, which S and chance leave out.
        covered: the least share of the parameters over which the newcomer was compared with one of
            the nearest; None where that is all.
        log10_p: that of the nearest vote of the cluster, or of all where it is in none; None where
            the vote has none.
        no_p: why there is no ``log10_p``; None where there is one.
    """

    _sentences: ClassVar[tuple[str, ...]] = ("reason", "note")
    clustering: str
    cluster: int
    exemplar: str | None = None
    share: float
    similarity: float | None
    votes: tuple[Vote, ...]
    margin: float | None = None
    compare: Compare | None = None
    learngene: LearngeneInfo | None = None
    mean_similarity: float | None = None
    within: float | None = None
    nearest_members: tuple[str, ...] = ()
    reason: str | None = None
    note: str | None = None
    constant_tensors: tuple[str, ...] = ()
    covered: float | None = None
    log10_p: float | None = None
    no_p: str | None = None

    def match(self, clusters: Mapping[Key, Collection[str]]) -> Key:
        """The cluster of another grouping that most of this cluster's nearest members are in.

            number = placed.match(strategy.clusters.models)
            start = strategy.cluster_arrays[number]

        A service and a federation number their clusters each on its own.

        Args:
            clusters: the members of each cluster, by its number or name, as the service names them.

        Raises:
            InvalidParameter: the newcomer is in no cluster, none of these has its members, or two
                have as many of them.
        """
        if self.cluster < 0:
            raise InvalidParameter(
                f"the newcomer is in no cluster: {self.reason or 'none is near'}", field="cluster"
            )
        members = set(self.nearest_members)
        found = {key: len(members.intersection(names)) for key, names in clusters.items()}
        most = max(found.values(), default=0)
        best = [key for key, count in found.items() if count == most]
        if most == 0:
            example = next(iter(self.nearest_members), "")
            raise InvalidParameter(
                f"none of these clusters has a member of cluster {self.cluster}, such as "
                f"{example!r}: give the names that the models have in the service",
                field="clusters",
            )
        if len(best) > 1:
            shared = ", ".join(map(str, best))
            raise InvalidParameter(
                f"clusters {shared} have {most} members each of cluster {self.cluster}: the two "
                f"groupings do not agree, so cluster the service's space again",
                field="clusters",
            )
        return best[0]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ClusteringPolicy(Printed):
    """The rule by which the service clusters a space without a request.

    Attributes:
        algorithm: as for ``client.clusterings.create``; None for the one that suits the number of
            models.
        parameters: as for ``client.clusterings.create``.
        after_changes: changes of the space that start a clustering; None for no limit.
        every_seconds: seconds after which a change starts a clustering; None for no limit.
        debounce_seconds: quiet seconds before the start; it waits ten times as long at most.
        pending_changes: changes since the last clustering by this policy.
        last_at: when that clustering was requested; None before the first.
    """

    algorithm: ClusteringAlgorithm | None = None
    parameters: Mapping[str, Any] = field(hash=False)
    after_changes: int | None = None
    every_seconds: int | None = None
    debounce_seconds: int
    pending_changes: int
    last_at: Moment | None = None


@dataclass(frozen=True, slots=True)
class _Row:
    model: str
    cluster: int
    exemplar: str | None
