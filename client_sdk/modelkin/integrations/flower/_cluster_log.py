"""``ClusterLog``: lines of the log about the clusters of each round."""

from __future__ import annotations

import logging

from flwr.serverapp.strategy import Strategy

from modelkin.integrations.federation.client_names import ClientNames
from modelkin.integrations.federation.cluster_history import RoundClusters
from modelkin.integrations.flower.learngenes.strategy import LearngeneStrategy
from modelkin.integrations.flower.shards.strategy import ShardedStrategy

__all__ = ["ClusterLog"]

log = logging.getLogger("modelkin.integrations")


class ClusterLog:
    """Log the clusters of each round, and once each cluster that is too small to average.

    Args:
        strategy: averages the models of each cluster.
        names: the clients' names.
        per_cluster: whether clusters have models.
    """

    def __init__(self, strategy: Strategy, names: ClientNames, *, per_cluster: bool) -> None:
        self._strategy, self._names = strategy, names
        # A LearngeneStrategy itself logs the clusters that keep their learngene.
        self._shows_small = per_cluster and not isinstance(strategy, LearngeneStrategy)
        self._small: set[int] = set()

    def write(self, found: RoundClusters) -> None:
        """Log the clusters of a round."""
        shown = "none" if found.silhouette is None else f"{found.silhouette:.2f}"
        log.info(
            "round %d: %d clients in %d clusters, silhouette %s",
            found.server_round,
            len(found.nodes),
            len(found.members),
            shown,
        )
        if not self._shows_small:
            return
        for cluster, nodes in found.members.items():
            why = None if cluster in self._small else self._small_because(nodes)
            if why is not None:
                self._small.add(cluster)
                log.warning("round %d: cluster %d %s", found.server_round, cluster, why)

    def _small_because(self, nodes: tuple[int, ...]) -> str | None:
        """The consequence of a cluster's small size; None where it is large enough."""
        strategy = self._strategy
        if isinstance(strategy, ShardedStrategy) and len(nodes) < strategy.min_members:
            return (
                f"has {len(nodes)} members, and min_members is {strategy.min_members}: it gets the "
                f"strategy's model, and is averaged with those of no cluster"
            )
        if len(nodes) == 1:
            return f"is client {self._names.of(nodes[0])} alone, and trains alone"
        return None
