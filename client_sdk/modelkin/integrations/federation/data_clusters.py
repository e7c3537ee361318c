"""``DataClusters``: the clusters that a server finds by what clients say of their data.

A data subspace is a fingerprint of samples; no model and no training is needed to compare two. The
server asks each client once, before its first round. A subspace shows the mean sample of each class
to the server: see docs/starting.md.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from modelkin.core.clustering.clustering import NOISE
from modelkin.core.subspaces.affinity import affinities
from modelkin.core.subspaces.subspace import Compare, Subspace
from modelkin.errors import InvalidInput, InvalidParameter
from modelkin.integrations.federation.centroids import Centroids, usual_comparison
from modelkin.integrations.federation.client_names import ClientNames
from modelkin.integrations.federation.cluster_history import ClusterHistory, RoundClusters
from modelkin.integrations.federation.newcomers import kind_of

__all__ = ["ASK", "Answers", "Asker", "DataClusters"]

log = logging.getLogger("modelkin.integrations")

ASK: Final = "subspace"
"""The step of a message that asks for a subspace, and the name of the answer's bytes."""

Answers = Mapping[int, Mapping[str, object] | str]
"""What each asked node answered, or the reason why it did not."""

Asker = Callable[[Sequence[int]], Answers]
"""Asks nodes for their subspaces."""

_MAX_COLUMNS: Final = 256
"""The most columns of a node's subspace, as in a service: a few bytes could claim all memory."""


class DataClusters:
    """The clusters of nodes by their data: found once, and newcomers placed in them.

    Args:
        history: numbers the clusters, so that a cluster keeps its number from round to round.
        names: the nodes' names, noted as they answer.
        missing: the reason to give where an answer has no subspace.
        recluster_every: rounds until the clusters are found again; None for never.

    Raises:
        InvalidParameter: an argument is out of its range.
    """

    def __init__(
        self,
        history: ClusterHistory,
        names: ClientNames,
        *,
        missing: str,
        recluster_every: int | None,
    ) -> None:
        if recluster_every is not None and (
            not isinstance(recluster_every, int)
            or isinstance(recluster_every, bool)
            or recluster_every < 1
        ):
            raise InvalidParameter(
                f"recluster_every must be a number of rounds, 1 or more, not {recluster_every!r}",
                field="recluster_every",
            )
        self._history, self._names = history, names
        self._missing, self._every = missing, recluster_every
        self._left_out: dict[int, str] = {}
        self._centroids: Centroids | None = None
        self._found: RoundClusters | None = None
        self._since = 0
        self.subspaces: dict[int, Subspace] = {}
        """The comparable subspace of each node that answered."""

    @property
    def compare(self) -> Compare | None:
        """The comparison that the clusters were made by; None before there are clusters."""
        return None if self._centroids is None else self._centroids.compare

    def update(self, server_round: int, present: Sequence[int], ask: Asker) -> RoundClusters | None:
        """Ask new nodes, and find their clusters; None while no node has answered.

        A node that is not connected is in no cluster, until it returns to its own.

        Args:
            server_round: the number of the round that begins, from 1.
            present: the connected nodes.
            ask: asks nodes for their subspaces.
        """
        again = self._every is not None and server_round - self._since >= self._every
        new = self._ask(present, ask, again=again)
        if self.subspaces and (self._found is None or again):
            self._found = self._cluster(server_round)
        elif self._found is not None:
            self._found = self._place(new, self._found)
        if self._found is None:
            return None
        self._found = replace(self._found, server_round=server_round, left_out=self._left_out)
        return _drop_missing(self._found, set(present))

    def _ask(self, nodes: Sequence[int], ask: Asker, *, again: bool) -> list[int]:
        """Ask new nodes, and with ``again`` the silent ones; return those that gave a subspace."""
        known = self.subspaces.keys() if again else {*self.subspaces, *self._left_out}
        asked = [node for node in nodes if node not in known]
        if not asked:
            return []
        new: list[int] = []
        for node, answer in ask(asked).items():
            try:
                self.subspaces[node] = self._read(answer)
            except InvalidInput as error:
                self._leave_out(node, str(error))
            else:
                assert not isinstance(answer, str)
                self._names.note(node, answer, nodes)
                self._left_out.pop(node, None)
                new.append(node)
        return self._comparable(new)

    def _read(self, answer: Mapping[str, object] | str) -> Subspace:
        """The subspace in an answer.

        Raises:
            InvalidInput: the answer has no subspace, or a damaged one.
        """
        if isinstance(answer, str):
            raise InvalidInput(answer)
        if "refused" in answer:
            raise InvalidInput(f"it made no subspace: {str(answer['refused'])[:500]}")
        data = answer.get(ASK)
        if not isinstance(data, bytes):
            raise InvalidInput(self._missing)
        return Subspace.from_bytes(data, max_columns=_MAX_COLUMNS)

    def _comparable(self, new: Sequence[int]) -> list[int]:
        """Leave out nodes whose subspaces are of another kind than those of the clusters.

        Before there are clusters, the kind of most nodes decides.
        """
        known = [node for node in self.subspaces if node not in new] or self.subspaces
        kinds = Counter(kind_of(self.subspaces[node]) for node in known)
        if not kinds:
            return []
        expected, _ = kinds.most_common(1)[0]
        for node, found in list(self.subspaces.items()):
            if kind_of(found) != expected:
                del self.subspaces[node]
                m, constant, weighting = kind_of(found)
                self._leave_out(
                    node,
                    f"its subspace has m {m}, constant {constant:g} and weighting {weighting!r}, "
                    f"those of most {expected[0]}, {expected[1]:g} and {expected[2]!r}",
                )
        return [node for node in new if node in self.subspaces]

    def _leave_out(self, node: int, why: str) -> None:
        self._left_out[node] = why
        log.warning("client %s is in no cluster: %s", self._names.of(node), why)

    def _cluster(self, server_round: int) -> RoundClusters:
        """Cluster all nodes, and take their centroids for newcomers."""
        compare = usual_comparison(list(self.subspaces.values()))
        nodes = sorted(node for node, own in self.subspaces.items() if own.of(compare))
        held = [self.subspaces[node] for node in nodes]
        similarity = affinities(held, compare)
        found = self._history.group(
            server_round, nodes, similarity, {}, contents=dict(zip(nodes, held, strict=True))
        )
        self._since = server_round
        self._centroids = Centroids(held, found.clusters, compare)
        for node in self.subspaces:
            self._left_out.pop(node, None)
        return self._place(sorted(set(self.subspaces) - set(nodes)), found)

    def _place(self, new: Sequence[int], found: RoundClusters) -> RoundClusters:
        """Place newcomers in the clusters, which do not move."""
        assert self._centroids is not None
        placed = dict[int, int]()
        for node in new:
            cluster = self._centroids.place(self.subspaces[node]).cluster
            if cluster == NOISE:
                self._leave_out(node, "its data is near that of no cluster")
                continue
            placed[node] = cluster
            self._history.join(node, cluster)
        if not placed:
            return found
        clusters = dict(zip(found.nodes, found.clusters.tolist(), strict=True)) | placed
        nodes = sorted(clusters)
        return replace(
            found,
            nodes=tuple(nodes),
            clusters=np.array([clusters[node] for node in nodes], np.int64),
            similarity=affinities([self.subspaces[n] for n in nodes], self._centroids.compare),
        )


def _drop_missing(found: RoundClusters, present: set[int]) -> RoundClusters:
    """The clusters without the nodes that are gone."""
    at = [place for place, node in enumerate(found.nodes) if node in present]
    gone = dict.fromkeys(set(found.nodes) - present, "it is not connected")
    return replace(
        found,
        nodes=tuple(found.nodes[place] for place in at),
        clusters=found.clusters[at],
        similarity=found.similarity[np.ix_(at, at)],
        left_out=dict(sorted({**found.left_out, **gone}.items())),
    )
