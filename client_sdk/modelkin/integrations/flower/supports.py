"""Clients that send their supports, and a strategy that clusters clients by them.

``SupportMod`` is a mod of a ClientApp: it attaches to each training reply the support, or only its
signature, of an importance that the app handed over. ``ClusteredStrategy`` wraps any strategy of a
ServerApp: each round it finds which clients are kin, without a service.

A support contains no values, but reveals which classes a client holds. A server that must not learn
that must not get supports. See docs/training.md.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, Result, Strategy

from modelkin.client import Client
from modelkin.core.clustering.linkage import DEFAULT_SEPARATION
from modelkin.core.selection.rule import SelectionRule
from modelkin.errors import InvalidParameter, ModelkinError
from modelkin.integrations._federation import ClusterHistory, RoundClusters, RoundUploader
from modelkin.integrations._messages import MessageLimits, SupportMessage
from modelkin.integrations.flower._shard_records import RECORD as SHARDS
from modelkin.integrations.flower.sharding import ShardedStrategy
from modelkin.selection import resize_support, select_support

__all__ = ["ClusteredStrategy", "SupportMod", "hand_over"]

log = logging.getLogger("modelkin.integrations")

RECORD: Final = "modelkin"
"""The name of modelkin's record in messages of both directions and in a client's state."""

_handed_over: ContextVar[list[Any]] = ContextVar("modelkin_importance")


def hand_over(importance: Any) -> None:
    """Give the mod the importance of this round's model; call it during the training.

    The importance stays on this machine: only the indices of its largest entries, or their
    signature, leave it.

    Args:
        importance: as for ``modelkin.select_support``, or a ``modelkin.torch.GradientMoment``. Best
            computed at the received weights, before any training (``fisher_importance``).

    Raises:
        InvalidParameter: this app has no ``SupportMod`` around its training function.
    """
    try:
        given = _handed_over.get()
    except LookupError:
        raise InvalidParameter(
            "no SupportMod is active: give the app one, ClientApp(mods=[SupportMod()]), and call "
            "this during the training, in the thread that Flower calls",
            field="importance",
        ) from None
    given[:] = [importance]


class SupportMod:
    """A mod that attaches a support, or its signature, to each training reply.

        app = ClientApp(mods=[SupportMod()])

        @app.train()
        def train(message, context):
            modelkin.integrations.flower.hand_over(fisher_importance(model, loss, loader))
            ...

    If the app handed over no importance, or none that yields a support, the log has a warning and
    the reply is sent without one. Clients should have supports of one size: after the first round
    the strategy sends them the median of their own choices, and they use it.

    Args:
        send: ``"support"``, or ``"signature"``, from which the server cannot read the indices.
        coverage: as for ``modelkin.select_support``, where the server sends no K.
        k_max: likewise.
        beta: the share of an average over rounds, kept in the client's own state, that remains
            after each round; the paper's is 0.8. None uses each round's importance alone.
        num_perm: h of the signature.
        seed: of the signature.

    Raises:
        InvalidParameter: an argument cannot be right.
    """

    def __init__(
        self,
        send: str = "support",
        *,
        coverage: float | None = None,
        k_max: float | None = None,
        beta: float | None = None,
        num_perm: int = 256,
        seed: int = 1,
    ) -> None:
        if send not in {"support", "signature"}:
            raise InvalidParameter(
                f"send must be 'support' or 'signature', not {send!r}", field="send"
            )
        if beta is not None and not 0 < beta < 1:
            raise InvalidParameter(f"beta must be between 0 and 1, not {beta!r}", field="beta")
        SelectionRule.of(1, coverage=coverage, k_max=k_max)
        self._send = send
        self._coverage, self._k_max, self._beta = coverage, k_max, beta
        self._num_perm, self._seed = num_perm, seed

    def __call__(
        self, msg: Message, ctxt: Context, call_next: Callable[[Message, Context], Message]
    ) -> Message:
        """Call the app, and attach a record to its reply to a training message."""
        shards = msg.content.config_records.get(SHARDS, ConfigRecord())
        trains = msg.metadata.message_type.partition(".")[0] == "train"
        if not trains or shards.get("step", "train") != "train":
            return call_next(msg, ctxt)
        config = msg.content.config_records.get(RECORD)
        k = None if config is None else config.get("k")
        given: list[Any] = []
        token = _handed_over.set(given)
        try:
            reply = call_next(msg, ctxt)
        finally:
            _handed_over.reset(token)
        if reply.has_content():
            self._attach(reply.content, given, k, ctxt)
        return reply

    def _attach(self, content: RecordDict, given: list[Any], k: Any, ctxt: Context) -> None:
        if not given:
            log.warning("no support is sent: the app did not call modelkin's hand_over(importance)")
            return
        try:
            message = self._make_message(given[0], k, ctxt)
        except ModelkinError as error:
            log.warning("no support is sent: %s", error)
            return
        content[RECORD] = ConfigRecord(dict(message.to_values()))

    def _make_message(self, given: Any, k: Any, ctxt: Context) -> SupportMessage:
        averaged = getattr(given, "importance", None)  # of a GradientMoment
        importance = averaged() if callable(averaged) else given
        if self._beta is not None:
            importance = _averaged(importance, self._beta, ctxt.state)
        # An importance that yields no support is refused here, and so never enters the average.
        chosen = select_support(importance, coverage=self._coverage, k_max=self._k_max)
        if self._beta is not None:
            ctxt.state[RECORD] = ArrayRecord({"importance": Array(importance)})
        agreed = k if type(k) is int and 1 <= k <= chosen.num_parameters else None
        support = resize_support(importance, chosen, agreed)
        if self._send == "support":
            return SupportMessage(support, chosen.k)
        return SupportMessage(support.signature(self._num_perm, self._seed), chosen.k)


def _averaged(importance: Any, beta: float, state: RecordDict) -> npt.NDArray[np.float32]:
    """The average with earlier rounds, up to a factor that changes no selection."""
    if hasattr(importance, "detach"):
        importance = importance.detach().float().cpu().numpy()
    summed = np.array(importance, np.float32)
    before = state.array_records.get(RECORD)
    if before is not None and before["importance"].numpy().shape == summed.shape:
        summed += np.float32(beta) * before["importance"].numpy()
    return summed


class ClusteredStrategy(Strategy):
    """Any strategy, and each round the clusters of its clients by the overlap of their supports.

        strategy = ClusteredStrategy(FedAvg(), on_clusters=lambda found: print(found.members))
        strategy.start(grid=grid, initial_arrays=arrays, num_rounds=5)

    The wrapped strategy works as it does alone, on all replies. With ``per_cluster`` each cluster
    also has a model, the average of its clients' weighted by their examples: from the next round on
    a client gets its cluster's model to train and to evaluate. A client in no cluster gets the
    strategy's.

    Around a ``ShardedStrategy`` each cluster is averaged in shards of its own. A cluster below its
    ``min_members`` gets the strategy's model.

    Clusters come from average linkage, cut where the silhouette is best. All clients are in one if
    they are not apart by ``separation``, or no more than by chance. A client whose record is
    missing or unreadable is in no cluster, and the log says why.

    Args:
        strategy: the wrapped strategy.
        on_clusters: called each round, after its training.
        per_cluster: whether clusters have models.
        separation: by how much the mean S within clusters is above that between them, at least;
            from 20 clients on, three tenths of it are enough if chance does not explain it.
        k_max: that of the clients' ``SupportMod``. A support with more indices than this share of
            the values of the round's model is refused before it is unpacked, as is one of more
            parameters than the model has values.
        client: of a modelkin service, to which each round's supports and signatures are uploaded;
            no failure of the service stops a round.
        space: to upload to; created if it is missing.
        model: the name of a client's model there, in which ``{node}`` stands for its node id.
        flush_seconds: how long :meth:`start` waits for the service at the end, at most.

    Raises:
        InvalidInput: an argument is out of its range.

    Source: the Index-Overlap Similarity paper, section 5 (clustered federated learning).
    """

    def __init__(
        self,
        strategy: Strategy,
        *,
        on_clusters: Callable[[RoundClusters], object] | None = None,
        per_cluster: bool = False,
        separation: float = DEFAULT_SEPARATION,
        k_max: float | None = None,
        client: Client | None = None,
        space: str | None = None,
        model: str = "flower/{node}",
        flush_seconds: float = 30.0,
    ) -> None:
        if (client is None) != (space is None):
            raise InvalidParameter("give client and space, or neither", field="space")
        if per_cluster and isinstance(strategy, ShardedStrategy) and strategy.has_own_masks:
            raise InvalidParameter(
                "masks='own' cannot be combined with per_cluster: shifts are of one set of "
                "clients; use masks='one'",
                field="masks",
            )
        self._inner = strategy
        self._on_clusters = on_clusters
        self._per_cluster = per_cluster
        self._uploader: RoundUploader | None = None
        if client is not None and space is not None:
            self._uploader = RoundUploader(client, space, model, flush_seconds)
        self._history = ClusterHistory(separation)
        SelectionRule.of(1, k_max=k_max)
        self._k_max, self._limits = k_max, MessageLimits()
        self._received: dict[int, ArrayRecord] = {}
        self.clusters: RoundClusters | None = None
        """Of the last round; None before the first, and where no client sent a support."""
        self.cluster_arrays: dict[int, ArrayRecord] = {}
        """The model of each cluster, with ``per_cluster``."""

    def start(self, *args: Any, **kwargs: Any) -> Result:
        """Run all rounds; arguments as of every strategy of Flower."""
        try:
            return super().start(*args, **kwargs)
        finally:
            if self._uploader is not None:
                self._uploader.close()

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The messages of the wrapped strategy, with the agreed K and each cluster's model."""
        values = sum(math.prod(array.shape) for array in arrays.values())
        self._limits = MessageLimits.of(values, self._k_max)
        messages = self._inner.configure_train(server_round, arrays, config, grid)
        self._received = {}
        return [self._personalize(message, with_k=True) for message in messages]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Cluster the clients, then aggregate with the wrapped strategy."""
        replies = list(replies)
        self.clusters = self._cluster(server_round, replies)
        arrays, metrics = self._aggregate(server_round, replies)
        if self.clusters is None:
            return arrays, metrics
        metrics = MetricRecord() if metrics is None else metrics
        metrics["modelkin-clusters"] = len(self.clusters.members)
        if self.clusters.silhouette is not None:
            metrics["modelkin-silhouette"] = self.clusters.silhouette
        if self._on_clusters is not None:
            self._on_clusters(self.clusters)
        return arrays, metrics

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The messages of the wrapped strategy, with each cluster's model."""
        messages = self._inner.configure_evaluate(server_round, arrays, config, grid)
        return [self._personalize(message, with_k=False) for message in messages]

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """The wrapped strategy's aggregate."""
        return self._inner.aggregate_evaluate(server_round, replies)

    def summary(self) -> None:
        """Log the settings of the wrapped strategy."""
        self._inner.summary()

    def cluster_of(self, node: int) -> int | None:
        """The cluster that a client was in when it last took part; None if it never did."""
        return self._history.cluster_of(node)

    def _personalize(self, message: Message, *, with_k: bool) -> Message:
        """Give a client its cluster's model, and the agreed K."""
        content = RecordDict(dict(message.content))  # messages of one round share theirs
        cluster = self.cluster_of(message.metadata.dst_node_id)
        own = None if cluster is None else self.cluster_arrays.get(cluster)
        if own is not None:
            self._received[message.metadata.dst_node_id] = own
            for name in list(content.array_records):
                content[name] = own
        if with_k and self._history.k is not None:
            content[RECORD] = ConfigRecord({"k": self._history.k})
        message.content = content
        return message

    def _cluster(self, server_round: int, replies: list[Message]) -> RoundClusters | None:
        messages, unread = _extract_messages(replies, self._limits)
        found = self._history.cluster(server_round, messages, unread) if messages else None
        for node, why in (unread if found is None else found.left_out).items():
            log.warning("round %d: client %d is in no cluster: %s", server_round, node, why)
        if found is not None and self._uploader is not None:
            self._uploader.upload(found, messages)
        return found

    def _aggregate(
        self, server_round: int, replies: list[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The wrapped strategy's aggregate, and each cluster's model."""
        inner, found = self._inner, self.clusters
        if found is None or not self._per_cluster:
            if isinstance(inner, ShardedStrategy):
                return inner.aggregate_clusters(server_round, replies, {}, self._received)[:2]
            return inner.aggregate_train(server_round, replies)
        if isinstance(inner, ShardedStrategy):
            arrays, metrics, models = inner.aggregate_clusters(
                server_round, replies, found.members, self._received
            )
            for cluster, nodes in found.members.items():
                if len(nodes) < inner.min_members:
                    self.cluster_arrays.pop(cluster, None)
        else:
            models = self._average_clusters(server_round, found, replies)
            arrays, metrics = inner.aggregate_train(server_round, replies)
        self.cluster_arrays.update(models)
        for gone in self.cluster_arrays.keys() - self._history.clusters:
            del self.cluster_arrays[gone]
        return arrays, metrics

    def _average_clusters(
        self, server_round: int, found: RoundClusters, replies: list[Message]
    ) -> dict[int, ArrayRecord]:
        """The average of each cluster of this round."""
        plain = FedAvg(weighted_by_key=getattr(self._inner, "weighted_by_key", "num-examples"))
        models: dict[int, ArrayRecord] = {}
        for cluster, nodes in found.members.items():
            own = [reply for reply in replies if reply.metadata.src_node_id in nodes]
            arrays, _ = plain.aggregate_train(server_round, own)
            if arrays is not None:
                models[cluster] = arrays
        return models


def _extract_messages(
    replies: Iterable[Message], limits: MessageLimits
) -> tuple[dict[int, SupportMessage], dict[int, str]]:
    """Remove modelkin's records from the replies: the messages, and why other nodes have none."""
    messages, unread = dict[int, SupportMessage](), dict[int, str]()
    for reply in replies:
        if not reply.has_content():
            continue  # failed: the wrapped strategy reports it
        node = reply.metadata.src_node_id
        record = reply.content.pop(RECORD, None)
        if record is None:
            unread[node] = "it sent no support; is SupportMod among the mods of its app?"
            continue
        try:
            messages[node] = SupportMessage.from_values(record, limits)
        except ModelkinError as error:
            unread[node] = str(error)
    return messages, unread
