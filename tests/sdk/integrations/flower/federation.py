"""A federation of Flower in one process: real ClientApps behind a Grid, messages as bytes between.

Its clients are of the two kinds that ``two_kinds`` has.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count
from typing import Any

from flwr.app import ArrayRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity
from torch import nn
from torch.nn.functional import cross_entropy

from modelkin.integrations.flower import SupportMod, hand_over
from modelkin.torch import fisher_importance
from tests.support.federations.two_kinds import examples, fit, mlp

__all__ = ["LocalGrid", "app", "examples", "mlp", "received", "reply"]


def app(mod: SupportMod | None, *outer: Any, inner: Iterable[Any] = ()) -> ClientApp:
    """A client that hands over its importance at the weights it received, and trains a little.

    Args:
        mod: the mod that sends its support.
        outer: mods before it.
        inner: mods behind it.
    """
    found = ClientApp(mods=[*outer, *([] if mod is None else [mod]), *inner])

    @found.train()
    def train(message: Message, context: Context) -> Message:
        model, (inputs, labels) = received(message), examples(context.node_id)
        if mod is not None:
            hand_over(fisher_importance(model, cross_entropy, [(inputs, labels)]))
        fit(model, inputs, labels)
        return reply(message, model, {"num-examples": len(labels)})

    @found.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        model, (inputs, labels) = received(message), examples(context.node_id)
        right = (model(inputs).argmax(1) == labels).float().mean().item()
        return reply(message, None, {"num-examples": len(labels), "accuracy": right})

    return found


def received(message: Message) -> nn.Module:
    """The model of a message."""
    model = mlp()
    arrays = message.content["arrays"]
    assert isinstance(arrays, ArrayRecord)
    model.load_state_dict(arrays.to_torch_state_dict())
    return model


def reply(message: Message, model: nn.Module | None, metrics: dict[str, Any]) -> Message:
    """What a client answers."""
    records: dict[str, Any] = {"metrics": MetricRecord(metrics)}
    if model is not None:
        records["arrays"] = ArrayRecord(model.state_dict())
    return Message(RecordDict(records), reply_to=message)


class LocalGrid(Grid):
    """Sends messages to apps in this process, as the bytes that a network would carry.

    Args:
        apps: by node id.
        contexts: of the nodes, where they are not empty.
    """

    def __init__(
        self, apps: dict[int, ClientApp], contexts: dict[int, Context] | None = None
    ) -> None:
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1  # the server's
        self._apps = apps
        self._contexts = {node: Context(1, node, {}, RecordDict(), {}) for node in apps}
        self._contexts.update(contexts or {})
        self._ids = count(1)
        self.sent: list[Message] = []
        self._answers: dict[str, Message] = {}

    def set_run(self, run: Any) -> None:
        raise AssertionError("this grid answers send_and_receive alone")

    @property
    def run(self) -> Any:
        raise AssertionError("this grid answers send_and_receive alone")

    def create_message(self, *arguments: Any, **named: Any) -> Message:
        raise AssertionError("deprecated")

    def get_node_ids(self) -> Iterable[int]:
        return list(self._apps)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        answers = {
            answer.metadata.reply_to_message_id: answer for answer in map(self._answered, messages)
        }
        self._answers.update(answers)
        return list(answers)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return [self._answers.pop(each) for each in message_ids if each in self._answers]

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        return [self._answered(message) for message in messages]

    def _answered(self, message: Message) -> Message:
        message.metadata.__dict__["_message_id"] = f"m{next(self._ids)}"
        self.sent.append(message)
        arrived = _carried(message)
        node = arrived.metadata.dst_node_id
        try:
            return _carried(self._apps[node](arrived, self._contexts[node]))
        except Exception as error:
            return Message(Error(code=0, reason=str(error)), reply_to=message)


def _carried(message: Message) -> Message:
    return message_from_proto(message_to_proto(message))
