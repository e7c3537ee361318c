"""``ClusterHistory``: which clients of a federation are kin, round by round.

Clusters are computed in this process from the supports or signatures that clients send, and keep
their numbers from round to round. ``flower`` knows the messages that carry them.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median_low
from typing import Any

import numpy as np
import numpy.typing as npt

from modelkin._validation import check_space_name
from modelkin.client import Client
from modelkin.client._protocol.spaces import stated_importance
from modelkin.core.clustering.clustering import lasting_ids
from modelkin.core.clustering.linkage import DEFAULT_SEPARATION, Division, groups
from modelkin.core.layout import Layout
from modelkin.core.sketching.signature import Signature
from modelkin.core.subspaces.subspace import Subspace
from modelkin.core.support import Support
from modelkin.errors import InvalidParameter, ModelkinError, SpaceMismatch
from modelkin.federation.learngenes.aggregate import real_number
from modelkin.integrations._background_uploader import BackgroundUploader
from modelkin.integrations._space_uploads import SpaceUploads
from modelkin.integrations.federation.client_names import ClientNames, check_model_pattern
from modelkin.integrations.federation.messages import SupportMessage, comparable, similarities
from modelkin.integrations.federation.newcomers import Content, assign
from modelkin.types.clusterings import Assignment
from modelkin.types.models import BulkItem
from modelkin.types.spaces import SubspaceSpec
from modelkin.types.vocabulary import ImportanceKind

__all__ = ["ClusterHistory", "RoundClusters", "RoundUploader"]

log = logging.getLogger("modelkin.integrations")


@dataclass(frozen=True, slots=True, eq=False)
class RoundClusters:
    """The clusters of clients in one round.

    Attributes:
        server_round: the round's number, from 1 on.
        nodes: the known clients whose supports or signatures are comparable, by their Flower node
            ids. With ``per_cluster``, clients of earlier rounds are known, too.
        clusters: the cluster of each node. A cluster keeps its number from round to round, as far
            as its clients stay together; shape ``(n,)``.
        similarity: S of all pairs of nodes, shape ``(n, n)``.
        exact: whether S is exact, from supports, or estimated, from signatures.
        silhouette: the silhouette of the clusters, -1 to 1; None where all clients are in one.
        left_out: the reason why another client is in no cluster, by node.
        names: names that clients sent, by node.
        tags: tags that clients sent, by node.
        replied: the clients that answered in this round, with or without a cluster.
        model: the pattern of the names of the clients' models in a service.
        weights: the share of each client that replied in the mean of its cluster, or without models
            of clusters in that of all; 0 of a client that is left out. Empty around strategies that
            average in shards or learngenes, and where nothing but the strategy weighs.
        weighted_down: why a client is left out of a mean, or counts less, by node.
        contents: the supports, signatures or subspaces that the clusters are made of, by node.
    """

    server_round: int
    nodes: tuple[int, ...]
    clusters: npt.NDArray[np.int64]
    similarity: npt.NDArray[np.float64]
    exact: bool
    silhouette: float | None
    left_out: Mapping[int, str]
    names: Mapping[int, str] = field(default_factory=dict)
    tags: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    replied: tuple[int, ...] = ()
    model: str = "{node}"
    weights: Mapping[int, float] = field(default_factory=dict)
    weighted_down: Mapping[int, str] = field(default_factory=dict)
    contents: Mapping[int, Content] = field(default_factory=dict, repr=False)

    @property
    def members(self) -> dict[int, tuple[int, ...]]:
        """The nodes of each cluster, by its number."""
        found: dict[int, tuple[int, ...]] = {}
        for node, cluster in zip(self.nodes, self.clusters.tolist(), strict=True):
            found[cluster] = (*found.get(cluster, ()), node)
        return dict(sorted(found.items()))

    @property
    def named(self) -> dict[int, tuple[str, ...]]:
        """The names of each cluster's clients in order, or the node's id."""
        return {
            cluster: tuple(sorted(self.names.get(node, str(node)) for node in nodes))
            for cluster, nodes in self.members.items()
        }

    @property
    def models(self) -> dict[int, tuple[str, ...]]:
        """The names that each cluster's models have in a service, for ``Assignment.match``."""
        return {
            cluster: tuple(self.model.replace("{node}", name) for name in names)
            for cluster, names in self.named.items()
        }

    def assign(self, newcomer: Content) -> Assignment:
        """The cluster that a newcomer would be in, by the rules of a service, and without one.

            placed = strategy.clusters.assign(support)
            start = strategy.cluster_arrays[placed.cluster]  # where it is not -1: placed.reason

        Nothing is stored, and no cluster moves. Chance is that of a space without a layout.

        Args:
            newcomer: a support or a signature at the weights that the clients' are of (with
                ``per_cluster`` those of the first round); or a data subspace, where clusters are by
                data.

        Raises:
            InvalidParameter: the newcomer is of another kind than what the clusters are made of.
            SpaceMismatch: it is of another number of parameters, or another kind of signature or
                subspace.
        """
        return assign(self, newcomer)


class ClusterHistory:
    """The cluster of each client, kept from round to round.

    Args:
        separation: see ``modelkin.core.clustering.linkage.groups``.
        division: a given division of clients, in place of the best one.

    Raises:
        InvalidParameter: ``separation`` is not 0 to 1.
    """

    def __init__(
        self, separation: float = DEFAULT_SEPARATION, division: Division | None = None
    ) -> None:
        if not 0 <= real_number(separation) <= 1:
            raise InvalidParameter(
                f"separation must be 0 to 1, not {separation!r}", field="separation"
            )
        self._separation = separation
        self._division = Division() if division is None else division
        self._cluster_of: dict[str, int] = {}
        self._next_id = 0
        self.k: int | None = None
        """The K that clients should select: the median of their own choices in the last round."""

    def cluster_of(self, node: int) -> int | None:
        """The cluster of a client when it last took part, or None."""
        return self._cluster_of.get(str(node))

    @property
    def clusters(self) -> set[int]:
        """The clusters in use, in which a client was when it last took part."""
        return set(self._cluster_of.values())

    def cluster(
        self, server_round: int, messages: Mapping[int, SupportMessage], unread: Mapping[int, str]
    ) -> RoundClusters:
        """Cluster the clients of a round.

        Args:
            server_round: the round's number.
            messages: the clients' messages by node, at least one.
            unread: the reasons why other clients have no readable message.
        """
        kept, incomparable = comparable(messages)
        nodes = sorted(kept)
        similarity, num_perm = similarities([kept[node] for node in nodes])
        self.k = median_low(message.k_star for message in kept.values())
        left_out = {**unread, **incomparable}
        contents = {node: kept[node].content for node in nodes}
        return self.group(
            server_round, nodes, similarity, left_out, num_perm=num_perm, contents=contents
        )

    def group(
        self,
        server_round: int,
        nodes: Sequence[int],
        similarity: npt.NDArray[np.float64],
        left_out: Mapping[int, str],
        *,
        num_perm: int | None = None,
        contents: Mapping[int, Content] | None = None,
    ) -> RoundClusters:
        """Group clients by S of all pairs, and number the groups as before.

        Args:
            server_round: the round's number.
            nodes: the n clients, at least one.
            similarity: S of all pairs, shape ``(n, n)``.
            left_out: the reasons why other clients are in no cluster, by node.
            num_perm: h of the signatures that S was estimated from; None where S is exact.
            contents: what S is of, by node, to which newcomers are compared.
        """
        if self._division.is_given:
            labels, silhouette = self._division.groups(similarity)
        else:
            labels, silhouette = groups(similarity, num_perm=num_perm, separation=self._separation)
        return RoundClusters(
            server_round=server_round,
            nodes=tuple(nodes),
            clusters=self._number([str(node) for node in nodes], labels),
            similarity=similarity,
            exact=num_perm is None,
            silhouette=silhouette,
            left_out=left_out,
            contents=contents or {},
        )

    def forget_others(self, nodes: Collection[int]) -> None:
        """Forget the clusters of all clients but these."""
        kept = {str(node) for node in nodes}
        self._cluster_of = {name: c for name, c in self._cluster_of.items() if name in kept}

    def join(self, node: int, cluster: int) -> None:
        """Note the cluster of a client that came after the clusters were found."""
        self._cluster_of[str(node)] = cluster
        self._next_id = max(self._next_id, cluster + 1)

    def _number(self, names: list[str], labels: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Number the clusters of these clients, as before where the clients stayed together."""
        ids = lasting_ids(names, labels, self._cluster_of)
        for label in np.flatnonzero(ids < 0).tolist():
            ids[label], self._next_id = self._next_id, self._next_id + 1
        clusters: npt.NDArray[np.int64] = ids[labels]
        self._cluster_of.update(zip(names, clusters.tolist(), strict=True))
        return clusters


class RoundUploader:
    """An uploader of clients' supports to a space of a service, in the background.

    Args:
        client: sends the supports; the caller closes it.
        space: the space's name; the space is created if it is missing.
        model: the name of a client's model, in which ``{node}`` stands for its name, or its node.
        flush_seconds: the longest time that :meth:`close` waits.
        layout: the layout of the clients' models, for a space that has to be created, or None.
        kind: the kind of their importance, for such a space, or None.

    Raises:
        InvalidName: space or model is not a valid name.
        InvalidParameter: ``{node}`` is missing in the model's name, or the kind is unknown.
    """

    def __init__(
        self,
        client: Client,
        space: str,
        model: str,
        flush_seconds: float,
        layout: Layout | None = None,
        kind: ImportanceKind | None = None,
    ) -> None:
        stated_importance(kind)
        self._model = check_model_pattern(model)
        self._client, self._space = client, check_space_name(space)
        self._flush_seconds, self._layout, self._kind = flush_seconds, layout, kind
        self._uploader = BackgroundUploader(flush_seconds=flush_seconds)
        self._has_stored = False

    def upload(
        self,
        found: RoundClusters,
        contents: Mapping[int, Support | Signature | Subspace],
        names: ClientNames,
    ) -> None:
        """Queue the contents of clients in clusters, with round, cluster and node; never wait."""
        items = [
            BulkItem(
                names.model(self._model, node),
                contents[node],
                tags=[*names.tags.get(node, ()), f"round-{found.server_round}"],
                attributes={
                    "round": found.server_round,
                    "cluster": cluster,
                    **({"node": str(node)} if node in names.names else {}),
                },
            )
            for node, cluster in zip(found.nodes, found.clusters.tolist(), strict=True)
            if node in contents
        ]
        if not items:
            return
        self._uploader.submit(f"round {found.server_round}", lambda: self._store(items))

    def close(self) -> None:
        """Wait for running uploads; later uploads start with an empty queue."""
        self._uploader.close()
        self._uploader = BackgroundUploader(flush_seconds=self._flush_seconds)

    def cluster(self, asked: Mapping[str, Any]) -> None:
        """Cluster the space, if something was stored there; a failure is logged.

        The service can place newcomers only in its own clusterings.

        Args:
            asked: keywords of ``client.clusterings.create``.
        """
        if not self._has_stored:
            return
        wait = self._flush_seconds
        try:
            self._client.clusterings.create(self._space, timeout=wait, **asked)
        except TimeoutError:
            log.info("space %s is clustered once a worker of its service is free", self._space)
        except ModelkinError as error:
            log.warning("space %s is not clustered: %s", self._space, error)

    def _store(self, items: list[BulkItem]) -> None:
        content = items[0].content
        if isinstance(content, Subspace):
            shared = SubspaceSpec(
                constant=content.constant,
                weighting=content.weighting,
                compare="classes" if content.labels else "whole",
            )
            self._client.ensure_space(
                self._space,
                kind="subspaces",
                num_parameters=content.num_features,
                subspaces=shared,
            )
        else:
            assert isinstance(content, Support | Signature)  # a round stores nothing else
            self._open(content.num_parameters)
        summary = self._client.put_many(self._space, items)
        for failure in summary.failures:
            log.warning("%s is not stored: %s: %s", failure.model, failure.code, failure.detail)
        self._has_stored |= summary.failed < summary.total

    def _open(self, num_parameters: int) -> None:
        """Find or create the space of supports.

        Raises:
            SpaceMismatch: the layout is not that of the supports.
        """
        if self._layout is not None and self._layout.num_parameters != num_parameters:
            raise SpaceMismatch(
                f"the layout has {self._layout.num_parameters} parameters and the supports are of "
                f"{num_parameters}: give the layout of what the clients hand over"
            )
        SpaceUploads(self._client, self._space, num_parameters, self._layout, self._kind).open()
