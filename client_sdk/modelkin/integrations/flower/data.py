"""``DataMod``: a node's answer about its data, and the clusters that a server finds by the answers.

A data subspace is a fingerprint of samples; no model and no training is needed to compare two. The
server asks each node once, before its first round. A subspace shows the mean sample of each class
to the server: see docs/starting.md.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from flwr.app import ConfigRecord, Context, Message, MessageType, RecordDict
from flwr.serverapp import Grid

from modelkin.core.clustering.clustering import NOISE, mean_within
from modelkin.core.similarity.distances import MatrixDistances
from modelkin.core.subspaces.affinity import Stack, affinities, scaled_columns
from modelkin.core.subspaces.subspace import Compare, Subspace
from modelkin.errors import InvalidInput, InvalidParameter, ModelkinError
from modelkin.integrations.federation.client_names import ClientNames
from modelkin.integrations.federation.cluster_history import ClusterHistory, RoundClusters
from modelkin.integrations.flower._client_labels import ClientLabel, NameOf, TagsOf
from modelkin.integrations.flower._grids import ASK, RECORD, exchange, is_ask

__all__ = ["DataClusters", "DataMod"]

log = logging.getLogger("modelkin.integrations")

_MAX_COLUMNS: Final = 256
"""The most columns of a node's subspace, as in a service: a few bytes could claim all memory."""

Next = Callable[[Message, Context], Message]


class DataMod:
    """A mod that answers the server's question for the node's data subspace.

        app = ClientApp(mods=[DataMod(lambda context: fit_subspace(*load(context)))])

    The app is not called for the question. ``DataMod`` comes before ``ShardMod``, which lets only
    messages of its own rounds pass. docs/starting.md says what a subspace shows, and how to add
    noise.

    Args:
        fit: makes the subspace of a context's node. If it fails, the node is in no cluster, and the
            server's log says why.
        name: the node's name, or a function that makes it of a context, or None.
        tags: the node's tags, or a function that makes them of a context.
    """

    def __init__(
        self,
        fit: Callable[[Context], Subspace],
        *,
        name: NameOf | None = None,
        tags: TagsOf = (),
    ) -> None:
        if not callable(fit):
            raise InvalidParameter(
                f"give a function that makes a subspace of a context, not {fit!r}", field="fit"
            )
        self._fit, self._label = fit, ClientLabel(name, tags)

    def __call__(self, msg: Message, ctxt: Context, call_next: Next) -> Message:
        """Answer a question for the subspace; let other messages pass."""
        if not is_ask(msg):
            return call_next(msg, ctxt)
        try:
            found = self._fit(ctxt)
            if not isinstance(found, Subspace):
                raise InvalidParameter(
                    f"DataMod's function made {type(found).__name__}, not a Subspace", field="fit"
                )
            values: dict[str, Any] = {ASK: found.to_bytes(), **self._label.values(ctxt)}
        except (ModelkinError, OSError, ValueError) as error:
            log.warning("no subspace is sent: %s", error)
            values = {"refused": str(error)}
        return Message(RecordDict({RECORD: ConfigRecord(values)}), reply_to=msg)


class DataClusters:
    """The clusters of nodes by their data: found once, and newcomers placed in them.

    Args:
        history: numbers the clusters, so that a cluster keeps its number from round to round.
        names: the nodes' names, noted as they answer.
        patience: seconds to wait for subspaces.
        recluster_every: rounds until the clusters are found again; None for never.

    Raises:
        InvalidParameter: an argument is out of its range.
    """

    def __init__(
        self,
        history: ClusterHistory,
        names: ClientNames,
        *,
        patience: float,
        recluster_every: int | None,
    ) -> None:
        if not isinstance(patience, int | float) or not 0 < patience < float("inf"):
            raise InvalidParameter(
                f"patience must be a number of seconds above 0, not {patience!r}", field="patience"
            )
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
        self._patience, self._every = patience, recluster_every
        self._left_out: dict[int, str] = {}
        self._centroids: _Centroids | None = None
        self._found: RoundClusters | None = None
        self._since = 0
        self.subspaces: dict[int, Subspace] = {}
        """The comparable subspace of each node that answered."""

    @property
    def compare(self) -> Compare | None:
        """The comparison that the clusters were made by; None before there are clusters."""
        return None if self._centroids is None else self._centroids.compare

    def update(self, server_round: int, grid: Grid) -> RoundClusters | None:
        """Ask new nodes, and find their clusters; None while no node has answered.

        A node that is not connected is in no cluster, until it returns to its own.

        Args:
            server_round: the number of the round that begins, from 1.
            grid: the run's grid.
        """
        again = self._every is not None and server_round - self._since >= self._every
        present = list(grid.get_node_ids())
        new = self._ask(present, grid, again=again)
        if self.subspaces and (self._found is None or again):
            self._found = self._cluster(server_round)
        elif self._found is not None:
            self._found = self._place(new, self._found)
        if self._found is None:
            return None
        self._found = replace(self._found, server_round=server_round, left_out=self._left_out)
        return _drop_missing(self._found, set(present))

    def _ask(self, nodes: Sequence[int], grid: Grid, *, again: bool) -> list[int]:
        """Ask new nodes, and with ``again`` the silent ones; return those that gave a subspace."""
        known = self.subspaces.keys() if again else {*self.subspaces, *self._left_out}
        asked = [node for node in nodes if node not in known]
        if not asked:
            return []
        record = RecordDict({RECORD: ConfigRecord({"step": ASK})})
        messages = [
            Message(record, dst_node_id=node, message_type=MessageType.TRAIN) for node in asked
        ]
        new: list[int] = []
        for node, answer in exchange(grid, messages, self._patience).items():
            try:
                self.subspaces[node] = _read(answer)
            except InvalidInput as error:
                self._leave_out(node, str(error))
            else:
                assert isinstance(answer, RecordDict)
                self._names.note(node, answer.config_records[RECORD], nodes)
                self._left_out.pop(node, None)
                new.append(node)
        return self._comparable(new)

    def _comparable(self, new: Sequence[int]) -> list[int]:
        """Leave out nodes whose subspaces are of another kind than those of the clusters.

        Before there are clusters, the kind of most nodes decides.
        """
        known = [node for node in self.subspaces if node not in new] or self.subspaces
        kinds = Counter(_kind(self.subspaces[node]) for node in known)
        if not kinds:
            return []
        expected, _ = kinds.most_common(1)[0]
        for node, found in list(self.subspaces.items()):
            if _kind(found) != expected:
                del self.subspaces[node]
                m, constant, weighting = _kind(found)
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
        compare = _usual(list(self.subspaces.values()))
        nodes = sorted(node for node, own in self.subspaces.items() if own.of(compare))
        held = [self.subspaces[node] for node in nodes]
        similarity = affinities(held, compare)
        found = self._history.group(server_round, nodes, similarity, {})
        self._since = server_round
        self._centroids = _Centroids(held, found.clusters, compare)
        for node in self.subspaces:
            self._left_out.pop(node, None)
        return self._place(sorted(set(self.subspaces) - set(nodes)), found)

    def _place(self, new: Sequence[int], found: RoundClusters) -> RoundClusters:
        """Place newcomers in the clusters, which do not move."""
        assert self._centroids is not None
        placed = dict[int, int]()
        for node in new:
            cluster = self._centroids.nearest(self.subspaces[node])
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


@dataclass(frozen=True, slots=True)
class _Members:
    """The clustered subspaces under one comparison.

    Attributes:
        stack: the subspaces, in the form that is compared.
        within: the squared length of each centroid, ``(k,)``.
        overall: the squared length of the mean of all.
    """

    stack: Stack
    within: npt.NDArray[np.float64]
    overall: float

    @classmethod
    def of(
        cls, held: Sequence[Subspace], labels: npt.NDArray[np.int64], compare: Compare
    ) -> _Members:
        distances = MatrixDistances(affinities(held, compare))
        return cls(
            Stack.of(held, compare),
            mean_within(distances, labels),
            float(mean_within(distances, np.zeros_like(labels))[0]),
        )


class _Centroids:
    """The mean of each cluster, to which newcomers are compared.

    Args:
        held: the n clustered subspaces.
        clusters: the cluster of each subspace, ``(n,)``.
        compare: the comparison that the clusters were made by.
    """

    def __init__(
        self, held: Sequence[Subspace], clusters: npt.NDArray[np.int64], compare: Compare
    ) -> None:
        self.compare: Compare = compare
        self._ids, self._labels = np.unique(clusters, return_inverse=True)
        self._held = held
        self._members: dict[Compare, _Members] = {}

    def nearest(self, newcomer: Subspace) -> int:
        """The cluster of the nearest centroid; -1 where the mean of all is as near.

        A newcomer without a class in common with any node is compared by all its samples.
        """
        ways: tuple[Compare, ...] = (self.compare,)
        if self.compare == "classes":
            ways = ("classes", "whole")
        for compare in ways:
            members = self._of(compare)
            similarity = members.stack.query(scaled_columns(newcomer, compare))
            if similarity.any():
                return self._best_cluster(similarity, members)
        return NOISE

    def _of(self, compare: Compare) -> _Members:
        if compare not in self._members:
            self._members[compare] = _Members.of(self._held, self._labels, compare)
        return self._members[compare]

    def _best_cluster(self, similarity: npt.NDArray[np.float64], members: _Members) -> int:
        sizes = np.bincount(self._labels)
        squared = 1.0 - 2.0 * np.bincount(self._labels, similarity) / sizes + members.within
        centre = 1.0 - 2.0 * float(similarity.mean()) + members.overall
        best = int(squared.argmin())
        if squared.size > 1 and squared[best] >= centre:
            return NOISE
        return int(self._ids[best])


def _read(answer: RecordDict | str) -> Subspace:
    """The subspace in an answer.

    Raises:
        InvalidInput: the answer has no subspace, or a damaged one.
    """
    if isinstance(answer, str):
        raise InvalidInput(answer)
    record: Mapping[str, object] = answer.config_records.get(RECORD, ConfigRecord())
    if "refused" in record:
        raise InvalidInput(f"it made no subspace: {str(record['refused'])[:500]}")
    data = record.get(ASK)
    if not isinstance(data, bytes):
        raise InvalidInput("it sent no subspace; is DataMod the first mod of its app?")
    return Subspace.from_bytes(data, max_columns=_MAX_COLUMNS)


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


def _kind(subspace: Subspace) -> tuple[int, float, str]:
    """The properties that comparable subspaces have in common."""
    return subspace.num_features, subspace.constant, subspace.weighting


def _usual(held: Sequence[Subspace]) -> Compare:
    """The usual comparison: by classes if most subspaces have some, else by all samples."""
    return "classes" if 2 * sum(bool(own.labels) for own in held) > len(held) else "whole"
