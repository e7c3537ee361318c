"""``AdapterMod`` and ``AdapterStrategy``: LoRA adapters of different ranks in one federation.

A message has the factors by PEFT's names, and an alpha beside each pair. See docs/adapters.md.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg

from modelkin.federation.adapters.tensors import config_of, with_alphas
from modelkin.integrations.federation.adapter_means import AdapterMeans, in_own_rank
from modelkin.integrations.federation.cluster_means import Model
from modelkin.integrations.federation.node_weights import RoundMembers, node_weights
from modelkin.integrations.flower._arrays import only
from modelkin.integrations.flower._grids import failure
from modelkin.integrations.flower._replies import read_models
from modelkin.integrations.flower._wrapped_strategies import check_instance
from modelkin.integrations.flower.learngenes.layers import values_by_name

__all__ = ["AdapterMod", "AdapterStrategy"]

log = logging.getLogger("modelkin.integrations")


class AdapterMod:
    """A mod that gives a client the server's adapter in the client's own rank.

        app = ClientApp(mods=[SupportMod(), AdapterMod(peft_config)])

    The app gets and returns factors by PEFT's names, of the ranks that its configuration says. A
    difference of a higher rank is cut to the best one of that rank. What a rank has beyond the
    difference begins as in PEFT, with an A that is the same on all clients and a B of zeros: so
    clients of all ranks begin alike, and the importance of what they learn can be compared.

    Args:
        config: PEFT's ``LoraConfig``, or the fields of ``adapter_config.json``; or a function that
            makes it of a node's context.

    Raises:
        InvalidCheckpoint: the configuration is not of LoRA, or of a variant; names the field.
    """

    def __init__(self, config: Any) -> None:
        self._config = config if callable(config) else config_of(config)

    def __call__(
        self, msg: Message, ctxt: Context, call_next: Callable[[Message, Context], Message]
    ) -> Message:
        """Call the app with an adapter of its own rank, and add the alphas to its reply.

        Raises:
            InvalidInput: the server's adapter, or the app's, is not one of the configuration; then
                Flower reports that the app failed.
        """
        if not msg.content.array_records:
            return call_next(msg, ctxt)
        config = config_of(self._config(ctxt)) if callable(self._config) else self._config
        name, received = only(msg.content.array_records)
        msg.content[name] = _record(in_own_rank(values_by_name(received), config))
        reply = call_next(msg, ctxt)
        if reply.has_content() and reply.content.array_records:
            name, trained = only(reply.content.array_records)
            reply.content[name] = _record(with_alphas(values_by_name(trained), config))
        return reply


class AdapterStrategy(FedAvg):
    """FedAvg for LoRA adapters of any ranks and scales.

        strategy = ClusteredStrategy(AdapterStrategy(peft_config), per_cluster=True)

    The mean is of the differences that the clients' adapters make, and is exact; each client is
    answered in its own rank, by the best adapter of that rank. A client that sends another layout,
    NaN or half a pair of factors does not count, and the log says why.

    Args:
        config: the configuration of the first arrays, as in :class:`AdapterMod`; None where alphas
            lie beside them.
        averaging: the arguments of ``FedAvg``.

    Raises:
        InvalidCheckpoint: the configuration is not of LoRA, or of a variant; names the field.
        InvalidParameter: it is a class.
    """

    def __init__(self, config: Any = None, **averaging: Any) -> None:
        check_instance(config, "config")
        super().__init__(**averaging)
        self.means = AdapterMeans(config)
        """Averages adapters; ``ClusteredStrategy`` uses it for clusters."""
        self._weigh = node_weights("examples")
        self.left_out: dict[int, str] = {}
        """The reasons why nodes did not count in the last round, by node."""

    @property
    def errors(self) -> Mapping[int, float]:
        """What each node's last adapter lacks of the exact mean, in the Frobenius norm, 0 to 1."""
        return self.means.errors

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The messages of FedAvg, to each node in its own rank.

        Raises:
            InvalidInput: the first arrays are no adapter, or nothing says its scale.
        """
        self.means.begin(values_by_name(arrays))
        messages = super().configure_train(server_round, arrays, config, grid)
        return [self._answer(message) for message in messages]

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The messages of FedAvg, to each node in its own rank."""
        messages = super().configure_evaluate(server_round, arrays, config, grid)
        return [self._answer(message) for message in messages]

    def part(self, arrays: ArrayRecord, node: int) -> ArrayRecord:
        """An adapter in a node's own rank."""
        return _record(self.means.answer(node, values_by_name(arrays)))

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The exact mean of the adapters that count, of the sum of their ranks at most."""
        replies = list(replies)
        models, examples, wrong = read_models(replies, self.weighted_by_key, self.means.misfits)
        for node, model in models.items():
            self.means.remember(node, model)
        weights = self._weigh(sorted(models), RoundMembers(models, examples))
        failed = {r.metadata.src_node_id: failure(r) for r in replies if not r.has_content()}
        self.left_out = dict(sorted({**failed, **wrong, **weights.down}.items()))
        for node, why in self.left_out.items():
            log.warning("round %d: the adapter of node %d: %s", server_round, node, why)
        counted = {node: weight for node, weight in weights.values.items() if weight > 0}
        if not counted:
            return None, None
        contents = [r.content for r in replies if r.metadata.src_node_id in counted]
        metrics = self.train_metrics_aggr_fn(contents, self.weighted_by_key)
        return _record(self.means.mean(models, counted)), metrics

    def _answer(self, message: Message) -> Message:
        content = RecordDict(dict(message.content))  # messages of a round share their content
        for name, arrays in list(content.array_records.items()):
            content[name] = self.part(arrays, message.metadata.dst_node_id)
        message.content = content
        return message


def _record(model: Model) -> ArrayRecord:
    return ArrayRecord({name: Array(values) for name, values in model.items()})
