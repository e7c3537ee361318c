"""``ClusteredStrategy``: any strategy, with clusters of its clients by supports or by data.

Clusters are found in the server's own process, without a service. See docs/flower.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Literal

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from modelkin.client import Client
from modelkin.core.clustering.linkage import DEFAULT_SEPARATION, Division
from modelkin.core.layout import Layout
from modelkin.errors import InvalidParameter
from modelkin.federation.adapters.tensors import targeted_values
from modelkin.integrations.federation.client_names import ClientNames
from modelkin.integrations.federation.cluster_history import (
    ClusterHistory,
    RoundClusters,
    RoundUploader,
)
from modelkin.integrations.federation.data_clusters import DataClusters
from modelkin.integrations.federation.kin_robust import KinRobust
from modelkin.integrations.federation.messages import check_k_max
from modelkin.integrations.federation.node_weights import WeightName
from modelkin.integrations.federation.support_clusters import SupportClusters
from modelkin.integrations.federation.wanted_models import WantedModels
from modelkin.integrations.flower._arrays import num_values
from modelkin.integrations.flower._cluster_log import ClusterLog
from modelkin.integrations.flower._cluster_models import ClusterModels
from modelkin.integrations.flower._cluster_settings import (
    PATIENCE_S,
    check_by,
    check_kinds,
    check_per_cluster,
    check_robust,
    check_trees,
    check_weights,
    sharded_inside,
)
from modelkin.integrations.flower._grids import RECORD, Costs, MeteredGrid, RoundCosts, take_records
from modelkin.integrations.flower._replies import first_of_each, with_failures
from modelkin.integrations.flower.data import ask_subspaces, check_patience
from modelkin.integrations.flower.learngenes.strategy import LearngeneStrategy
from modelkin.integrations.flower.mixing import RECORD as MIX
from modelkin.integrations.flower.shards.records import late_nodes
from modelkin.types.vocabulary import ImportanceKind

__all__ = ["ClusteredStrategy"]


class ClusteredStrategy(Strategy):
    """Any strategy, with clusters of its clients: by supports each round, or by their data.

        strategy = ClusteredStrategy(FedAvg(), on_clusters=lambda found: print(found.members))
        strategy.start(grid=grid, initial_arrays=arrays, num_rounds=5)

    The wrapped strategy works as it does alone, on all replies; one that is a ``FedAvg`` gets no
    reply that it cannot average, and ``RoundClusters.weighted_down`` and the log say why. With
    ``per_cluster`` each cluster also has a model, the average of its clients' weighted by their
    examples: from the next round on a client gets its cluster's model to train and to evaluate. A
    client in no cluster gets the strategy's model. The support of each client is kept, also if no
    round has sampled the client since. A new client gets the weights of the first round, since
    supports of other weights cannot be compared. If no client of a cluster was sampled, the cluster
    keeps its model.

    Around a ``ShardedStrategy`` each cluster is averaged in shards of its own. If fewer than
    ``min_members`` of a cluster replied in a round, it keeps its model; a cluster with fewer known
    clients gets the strategy's. Around a ``LearngeneStrategy`` each cluster has a learngene of its
    own, and keeps it in a round of fewer members.

    With ``by="data"`` each node is asked once, before its first round, for its data subspace, which
    its ``DataMod`` answers. Nodes that join later are placed by the nearest centroid, move no
    cluster, and get their cluster's model with their first training message. A node whose data is
    near no cluster, or that does not answer, is in no cluster.

    Clusters come from average linkage, cut where the silhouette is best. All clients are in one
    cluster if they are not apart by ``separation``, or no more than by chance. ``n_clusters`` or
    ``distance_threshold`` sets another cut. A client whose record is missing or unreadable is in no
    cluster, and the log says why.

    Clients weigh by the examples that they claim, or by what their supports add to the others':
    ``weights="cover"`` or ``"rarity"``. A client that sent none then has the least weight.

    Args:
        strategy: the wrapped strategy.
        by: ``"supports"`` of ``SupportMod``, or ``"data"`` of ``DataMod``.
        on_clusters: a function that is called each round, after its training.
        per_cluster: whether clusters have models.
        both: with ``per_cluster``, whether clients whose ``MixMod`` asks for the strategy's model
            are sent it beside their cluster's, or in its place.
        weights: ``"examples"``, ``"equal"``, ``"cover"`` or ``"rarity"``, in each cluster and in
            the strategy's mean, which finds them in place of the examples in replies. Others than
            ``"examples"`` take the place of a ``LearngeneStrategy``'s own.
        robust: whether clients that agree too little with their cluster are left out, of its mean
            and the strategy's, and long updates count less: True, or a ``KinRobust``.
            ``RoundClusters.weighted_down`` and the log say why.
        forget_after: with ``per_cluster``, rounds without an answer after which a client and its
            support are forgotten; if it returns, it is new. None for never.
        separation: the least excess of the mean S within clusters over that between clusters; from
            20 clients on, three tenths of it are enough if chance does not explain the excess.
        n_clusters: the number of clusters; fewer where fewer clients take part.
        distance_threshold: the mean distance, 1 - S, of clients from which clusters stay apart.
        k_max: the ``k_max`` of the clients' ``SupportMod``. A support with more indices than this
            share of the values of the round's model is refused before it is unpacked, as is a
            support of more parameters than the model has values; of an adapter than it targets, or
            than ``layout`` has.
        patience: with ``by="data"``, seconds to wait for subspaces.
        recluster_every: with ``by="data"``, rounds until clusters are found again, newcomers
            included; nodes that did not answer are then asked again. None for never.
        client: the client of a modelkin service, which gets each round's supports and signatures,
            or subspaces; no failure of the service stops a round. At the end the service makes the
            same clusters, so that it can place newcomers.
        space: the space to upload to; created if it is missing.
        layout: the layout of the clients' models, from ``modelkin.torch.layout_of``, for a space
            that is created. With it the service knows S by chance (kappa) and the tensors.
        importance: the kind of importance for such a space: ``"fisher"`` for
            ``modelkin.torch.fisher_importance``.
        model: the name of a client's model in the service, in which ``{node}`` stands for the name
            that the client sent, or else for its node id.
        flush_seconds: the longest time that :meth:`start` waits for the service at the end: once
            for the uploads, and again for the clustering, which ends without it.

    Raises:
        InvalidInput: an argument is out of its range.

    Source: the Index-Overlap Similarity paper, section 5 (clustered federated learning).
    """

    def __init__(
        self,
        strategy: Strategy,
        *,
        by: Literal["supports", "data"] = "supports",
        on_clusters: Callable[[RoundClusters], object] | None = None,
        per_cluster: bool = False,
        both: bool = False,
        weights: WeightName = "examples",
        robust: bool | KinRobust = False,
        forget_after: int | None = None,
        separation: float = DEFAULT_SEPARATION,
        n_clusters: int | None = None,
        distance_threshold: float | None = None,
        k_max: float | None = None,
        patience: float = PATIENCE_S,
        recluster_every: int | None = None,
        client: Client | None = None,
        space: str | None = None,
        layout: Layout | None = None,
        importance: ImportanceKind | None = None,
        model: str = "flower/{node}",
        flush_seconds: float = 30.0,
    ) -> None:
        if (client is None) != (space is None):
            raise InvalidParameter("give client and space, or neither", field="space")
        check_kinds({"on_clusters": on_clusters}, {"per_cluster": per_cluster, "both": both})
        check_k_max(k_max)
        check_by(by, recluster_every, layout, importance, patience)
        sharded = sharded_inside(strategy)
        check_weights(weights, by, sharded)
        limits = check_robust(robust, strategy, sharded, both=both)
        check_trees(strategy, weights, robust=limits is not None, per_cluster=per_cluster)
        check_per_cluster(strategy, by, sharded, forget_after, per_cluster=per_cluster, both=both)
        self._inner = strategy
        self._on_clusters, self._per_cluster, self._model = on_clusters, per_cluster, model
        self._uploader: RoundUploader | None = None
        if client is not None and space is not None:
            self._uploader = RoundUploader(client, space, model, flush_seconds, layout, importance)
        self._layout = layout
        self._division = Division(n_clusters, distance_threshold)
        self._history = ClusterHistory(separation, self._division)
        self._names = ClientNames()
        if sharded is not None:
            sharded.names = self._names
        self._supports = SupportClusters[ArrayRecord](
            self._history,
            self._names,
            keeps_first=per_cluster and by == "supports",
            forget_after=forget_after,
            k_max=k_max,
            missing="it sent no support: does its app have SupportMod, and call hand_over?",
        )
        self._data: DataClusters | None = None
        self._patience = check_patience(patience)
        data = DataClusters(
            self._history,
            self._names,
            missing="it sent no subspace; is DataMod the first mod of its app?",
            recluster_every=recluster_every,
        )
        if by == "data":
            self._data = data
        self._costs = strategy.meter if isinstance(strategy, LearngeneStrategy) else Costs()
        self._cluster_log = ClusterLog(strategy, self._names, per_cluster=per_cluster)
        self._models = ClusterModels(
            strategy, self._names, self._supports.first, weights, limits, per_cluster=per_cluster
        )
        self._wanted = WantedModels(both, self._names)
        self._contents: Mapping[int, Any] = {}
        self._asked = frozenset[int]()
        self.clusters: RoundClusters | None = None
        """The clusters of the last round; None before the first, or if no client sent a support."""

    @property
    def cluster_arrays(self) -> dict[int, ArrayRecord]:
        """The model of each cluster, with ``per_cluster``."""
        return self._models.arrays

    @property
    def shares(self) -> dict[int, float]:
        """The share of the cluster's model in what each client's ``MixMod`` made last, by node."""
        return self._wanted.shares

    @property
    def costs(self) -> dict[int, RoundCosts]:
        """The bytes of each round's messages as serialised, by node, of :meth:`start`."""
        return self._costs.rounds

    def start(
        self, grid: Grid, initial_arrays: ArrayRecord, num_rounds: int = 3, *args: Any, **named: Any
    ) -> Result:
        """Run all rounds; takes the arguments of every strategy of Flower."""
        if isinstance(self._inner, LearngeneStrategy):
            self._inner.begin(num_rounds, self._names)
        metered = MeteredGrid(grid, self._costs)
        try:
            return super().start(metered, initial_arrays, num_rounds, *args, **named)
        finally:
            if self._uploader is not None:
                self._uploader.close()
                self._uploader.cluster(self._clustering_keywords())
            if isinstance(self._inner, LearngeneStrategy):
                self._inner.finish(self._clustering_keywords())

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The messages of the wrapped strategy, with the agreed K and each cluster's model."""
        self._costs.begin(server_round)
        messages = list(self._inner.configure_train(server_round, arrays, config, grid))
        self._supports.begin(arrays, self._most_values(arrays), grid.get_node_ids())
        if self._data is not None:
            present = list(grid.get_node_ids())
            found = self._data.update(
                server_round, present, lambda new: ask_subspaces(new, grid, self._patience)
            )
            self._keep_clusters(found, self._data.subspaces, all_new=False)
        self._models.begin(arrays, messages)
        self._asked = frozenset(message.metadata.dst_node_id for message in messages)
        return [self._personalize(message, to_train=True) for message in messages]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Cluster the clients, then aggregate with the wrapped strategy."""
        replies = first_of_each(server_round, replies)
        if self.clusters is not None:  # reasons are of one round
            self.clusters = replace(self.clusters, weighted_down={})
        share = self._wanted.note(server_round, take_records(replies, MIX))
        messages, unread = self._supports.read(take_records(replies))
        if not self._supports.keeps_first:  # then supports are of the models of one round
            unread |= late_nodes(replies)
            messages = {node: each for node, each in messages.items() if node not in unread}
        if self._data is None:
            found, contents = self._supports.update(server_round, messages, unread, self.clusters)
            self._keep_clusters(found, contents, all_new=not self._supports.keeps_first)
        replied = tuple(sorted(r.metadata.src_node_id for r in replies if r.has_content()))
        if self.clusters is not None:
            self.clusters = replace(self.clusters, replied=replied)
        arrays, metrics, self.clusters = self._models.aggregate(
            server_round, replies, self.clusters, self._contents
        )
        metrics = _with_share(metrics, share)
        if self.clusters is None:
            return arrays, metrics
        self.clusters = with_failures(self.clusters, replies, self._asked)
        if self._per_cluster:
            self._models.keep_only(self._history.clusters)
        metrics = MetricRecord() if metrics is None else metrics
        metrics["modelkin-clusters"] = len(self.clusters.members)
        if self.clusters.silhouette is not None:
            metrics["modelkin-silhouette"] = self.clusters.silhouette
        self._cluster_log.write(self.clusters)
        if self._on_clusters is not None:
            self._on_clusters(self.clusters)
        return arrays, metrics

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The messages of the wrapped strategy, with each cluster's model."""
        messages = self._inner.configure_evaluate(server_round, arrays, config, grid)
        return [self._personalize(message, to_train=False) for message in messages]

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """The wrapped strategy's aggregate."""
        replies = list(replies)
        share = self._wanted.note(server_round, take_records(replies, MIX))
        return _with_share(self._inner.aggregate_evaluate(server_round, replies), share)

    def summary(self) -> None:
        """Log the settings of the wrapped strategy."""
        self._inner.summary()

    def cluster_of(self, node: int) -> int | None:
        """The cluster of a client when it last took part, or None."""
        return self._history.cluster_of(node)

    def _most_values(self, arrays: ArrayRecord) -> int:
        """The most parameters of a support: of the model, of an adapter's targets, of a layout."""
        named = 0 if self._layout is None else self._layout.num_parameters
        return max(num_values(arrays), targeted_values(arrays), named)

    def _clustering_keywords(self) -> dict[str, Any]:
        """The keywords for a service's clustering that is alike."""
        asked: dict[str, Any] = {"algorithm": "agglomerative"}
        found, division = self.clusters, self._division
        if division.n_clusters is not None and found is not None:
            asked["n_clusters"] = min(division.n_clusters, len(found.nodes))
        if division.distance_threshold is not None:
            asked["distance_threshold"] = division.distance_threshold
        if self._data is not None and self._data.compare is not None:
            asked["compare"] = self._data.compare
        return asked

    def _personalize(self, message: Message, *, to_train: bool) -> Message:
        """Give a client its cluster's model, or a new one the first weights, and the agreed K."""
        content = RecordDict(dict(message.content))  # messages of a round share their content
        node = message.metadata.dst_node_id
        cluster = self.cluster_of(node)
        own = None if cluster is None else self.cluster_arrays.get(cluster)
        wants = self._wanted.of(node)
        if to_train and self._supports.keeps_first and cluster is None:
            own, wants = self._supports.first.lend(node), "cluster"  # as they are, unmixed
        if own is not None and wants != "common":
            self._models.give(content, node, own, beside=wants == "both")
        if to_train and self._history.k is not None:
            content[RECORD] = ConfigRecord({"k": self._history.k})
        message.content = content
        return message

    def _keep_clusters(
        self, found: RoundClusters | None, contents: Mapping[int, Any], *, all_new: bool
    ) -> None:
        """Keep a round's clusters, and upload the content of each client that moved.

        Args:
            found: the clusters.
            contents: the support, signature or subspace of each client.
            all_new: whether every client has a new content.
        """
        before, self._contents = self.clusters, contents
        if found is not None and self._uploader is not None:
            known = {} if before is None or all_new else _cluster_by_node(before)
            moved = set(_cluster_by_node(found).items()) - set(known.items())
            self._uploader.upload(found, {node: contents[node] for node, _ in moved}, self._names)
        self.clusters = None if found is None else self._with_names(found)

    def _with_names(self, found: RoundClusters) -> RoundClusters:
        """Add the names and tags that clients have now to their clusters."""
        names, tags = dict(self._names.names), dict(self._names.tags)
        return replace(found, names=names, tags=tags, model=self._model)


def _with_share(metrics: MetricRecord | None, share: float | None) -> MetricRecord | None:
    """A round's metrics with the mean share of the clusters' models, where clients mixed."""
    if share is None:
        return metrics
    found = MetricRecord() if metrics is None else metrics
    found["modelkin-share"] = share
    return found


def _cluster_by_node(found: RoundClusters) -> dict[int, int]:
    return dict(zip(found.nodes, found.clusters.tolist(), strict=True))
