"""``Rounds``: which clients of a federation are kin, round by round, and where that is stored.

Clusters are made of what clients offer, in this process, and keep their numbers. Whose messages
these came in is not known here.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median_low

import numpy as np
import numpy.typing as npt

from modelkin._validation import check_model_name, check_space_name
from modelkin.client import Client
from modelkin.core.clustering.clustering import lasting_ids
from modelkin.core.clustering.linkage import SEPARATION, groups
from modelkin.errors import InvalidParameter
from modelkin.integrations._background_uploader import Pusher
from modelkin.integrations._messages import SupportMessage, comparable, similarities
from modelkin.integrations._space_session import SpaceSession
from modelkin.types.models import BulkItem

__all__ = ["RoundClusters", "RoundStore", "Rounds"]

log = logging.getLogger("modelkin.integrations")


@dataclass(frozen=True, slots=True, eq=False)
class RoundClusters:
    """Which clients were kin in one round.

    Attributes:
        server_round: which, from 1 on.
        nodes: the clients that sent something comparable, by their Flower node ids.
        clusters: the cluster of each of them. A cluster keeps its number from round to round, as
            far as its clients stay together; shape ``(n,)``.
        similarity: S of all pairs of them, shape ``(n, n)``.
        exact: whether S is exact, of supports, or estimated, of signatures.
        silhouette: of the clusters, -1 to 1; None where all are one.
        left_out: why another client is in none, by node.
    """

    server_round: int
    nodes: tuple[int, ...]
    clusters: npt.NDArray[np.int64]
    similarity: npt.NDArray[np.float64]
    exact: bool
    silhouette: float | None
    left_out: Mapping[int, str]

    @property
    def members(self) -> dict[int, tuple[int, ...]]:
        """The nodes of each cluster, by its number."""
        found: dict[int, tuple[int, ...]] = {}
        for node, cluster in zip(self.nodes, self.clusters.tolist(), strict=True):
            found[cluster] = (*found.get(cluster, ()), node)
        return dict(sorted(found.items()))


class Rounds:
    """What is remembered from round to round.

    Args:
        separation: as of ``modelkin.core.clustering.linkage.groups``.

    Raises:
        InvalidParameter: it is not 0 to 1.
    """

    def __init__(self, separation: float = SEPARATION) -> None:
        if not 0 <= separation <= 1:
            raise InvalidParameter(
                f"separation must be 0 to 1, not {separation!r}", field="separation"
            )
        self._separation = separation
        self._cluster_of: dict[str, int] = {}
        self._fresh = 0
        self.k: int | None = None
        """The K that clients should select: the median of what each of the last round would."""

    def cluster_of(self, node: int) -> int | None:
        """The cluster that a client was in when it last took part; None if it never did."""
        return self._cluster_of.get(str(node))

    @property
    def clusters(self) -> set[int]:
        """All that a client was in when it last took part."""
        return set(self._cluster_of.values())

    def clustered(
        self, server_round: int, offers: Mapping[int, SupportMessage], unread: Mapping[int, str]
    ) -> RoundClusters:
        """The clusters of a round.

        Args:
            server_round: which.
            offers: of the clients, by node; at least one.
            unread: why other clients have none.
        """
        kept, others = comparable(offers)
        nodes = sorted(kept)
        similarity, num_perm = similarities([kept[node] for node in nodes])
        labels, silhouette = groups(similarity, num_perm=num_perm, separation=self._separation)
        self.k = median_low(offer.k_star for offer in kept.values())
        return RoundClusters(
            server_round=server_round,
            nodes=tuple(nodes),
            clusters=self._lasting([str(node) for node in nodes], labels),
            similarity=similarity,
            exact=num_perm is None,
            silhouette=silhouette,
            left_out={**unread, **others},
        )

    def _lasting(self, names: list[str], labels: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The numbers of the clusters of these clients, as before where they stayed together."""
        ids = lasting_ids(names, labels, self._cluster_of)
        for label in np.flatnonzero(ids < 0).tolist():
            ids[label], self._fresh = self._fresh, self._fresh + 1
        clusters: npt.NDArray[np.int64] = ids[labels]
        self._cluster_of.update(zip(names, clusters.tolist(), strict=True))
        return clusters


class RoundStore:
    """A space of a service to which each round's supports and signatures go, in the background.

    Args:
        client: stays the caller's, to close.
        space: the name; made if there is none.
        model: the name of a client's model, in which ``{node}`` stands for its node.
        patience: seconds that :meth:`close` waits at most.

    Raises:
        InvalidName: space or model are no names.
        InvalidParameter: the model's names no node.
    """

    def __init__(self, client: Client, space: str, model: str, patience: float) -> None:
        if "{node}" not in model:
            raise InvalidParameter(f"model {model!r} has no {{node}} in it", field="model")
        check_model_name(model.replace("{node}", str(2**64)))
        self._client, self._space = client, check_space_name(space)
        self._model, self._patience = model, patience
        self._pusher = Pusher(patience=patience)

    def push(self, found: RoundClusters, offers: Mapping[int, SupportMessage]) -> None:
        """Has the offers of the clients in clusters stored, with round and cluster; no waiting."""
        clusters = dict(zip(found.nodes, found.clusters.tolist(), strict=True))
        items = [
            BulkItem(
                self._model.replace("{node}", str(node)),
                offers[node].content,
                tags=[f"round-{found.server_round}"],
                attributes={"round": found.server_round, "cluster": cluster},
            )
            for node, cluster in clusters.items()
        ]
        self._pusher.submit(f"round {found.server_round}", lambda: self._store(items))

    def close(self) -> None:
        """Waits for what is under way; what comes later begins anew."""
        self._pusher.close()
        self._pusher = Pusher(patience=self._patience)

    def _store(self, items: list[BulkItem]) -> None:
        SpaceSession(self._client, self._space, items[0].content.num_parameters).open()
        for failure in self._client.put_many(self._space, items).failures:
            log.warning("%s is not stored: %s: %s", failure.model, failure.code, failure.detail)
