"""Clients that average in shards: fixed updates instead of training, and a Grid that records.

The updates are drawn by node and round, so that any average of them can be computed beside.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.serde import message_to_proto
from flwr.serverapp.strategy import FedAvg, Result, Strategy

from modelkin.integrations.flower import RoundReport, ShardedStrategy, ShardMod
from tests.sdk.integrations.flower.federation import LocalGrid

SHAPES = {"w": (40, 25), "b": (31,), "scale": ()}
NUM_VALUES = 1032

Floats = npt.NDArray[np.float32]
Mods = Callable[[int], list[Any]]
Train = Callable[[int, int, dict[str, Any]], dict[str, Any]]


def model() -> ArrayRecord:
    """The model that all rounds begin with: three arrays, and a counter of whole numbers."""
    rng = np.random.default_rng(3)
    arrays = {n: Array(np.asarray(rng.normal(0, 1, s), np.float32)) for n, s in SHAPES.items()}
    return ArrayRecord({**arrays, "steps": Array(np.array([7]))})


def vector(arrays: ArrayRecord) -> Floats:
    """All arrays of floating-point numbers as one vector."""
    return np.concatenate([arrays[name].numpy().ravel() for name in SHAPES])


def update(node: int, server_round: int) -> dict[str, Any]:
    """What a client adds to the model in a round."""
    rng = np.random.default_rng([node, server_round])
    return {name: rng.normal(0, 0.05, shape) for name, shape in SHAPES.items()}


def flat(step: dict[str, Any]) -> npt.NDArray[np.float64]:
    """An update as one vector."""
    return np.concatenate([step[name].ravel() for name in SHAPES])


def steady(node: int, server_round: int, new: dict[str, Any]) -> dict[str, Any]:
    """A training of which the update is that of the first round in each."""
    step, first = update(node, server_round), update(node, 1)
    for name in step:
        new[name] = np.asarray(new[name] - step[name] + first[name], np.float32)
    return new


def examples(node: int) -> int:
    """How many examples a client has."""
    return 10 + 7 * node


def app(mods: list[Any], train: Train | None = None) -> ClientApp:
    """A client that adds its update to what it received, or what ``train`` makes of that."""
    found = ClientApp(mods=mods)

    @found.train()
    def reply(message: Message, context: Context) -> Message:
        server_round = message.content["config"]["server-round"]
        assert isinstance(server_round, int)
        node, step = context.node_id, update(context.node_id, server_round)
        arrays = message.content["arrays"]
        assert isinstance(arrays, ArrayRecord)
        new: dict[str, Any] = {
            name: np.asarray((array.numpy() + step.get(name, 1)).astype(array.dtype))
            for name, array in arrays.items()
        }
        new = new if train is None else train(node, server_round, new)
        metrics = new.pop("metrics", {"num-examples": examples(node), "loss": node / 4})
        records: dict[str, Any] = {"metrics": MetricRecord(metrics)}
        if new:
            records["arrays"] = ArrayRecord({n: Array(a) for n, a in new.items()})
        return Message(RecordDict(records), reply_to=message)

    return found


class RecordingGrid(LocalGrid):
    """A LocalGrid that keeps all bytes, and loses or changes messages.

    Args:
        apps: by node id.
        configs: the configurations of nodes.
    """

    def __init__(
        self, apps: dict[int, ClientApp], configs: dict[int, dict[str, Any]] | None = None
    ) -> None:
        super().__init__(apps)
        for node, config in (configs or {}).items():
            self._contexts[node] = Context(1, node, config, RecordDict(), {})
        self.carried: list[bytes] = []
        self.answers: list[Message] = []
        self.away: set[int] = set()
        self.lose: Callable[[Message], bool] = lambda message: False
        self.lose_answer: Callable[[Message], bool] = lambda message: False
        self.tamper: Callable[[Message, Message], Message] = lambda message, answer: answer

    def state(self, node: int) -> RecordDict:
        """What a client keeps between messages."""
        return self._contexts[node].state

    def get_node_ids(self) -> Iterable[int]:
        return [node for node in self._apps if node not in self.away]

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        answers = []
        for message in messages:
            if self.lose(message) or message.metadata.dst_node_id in self.away:
                self.carried.append(message_to_proto(message).SerializeToString())
                continue
            answer = self._answered(message)
            self.carried.append(message_to_proto(message).SerializeToString())
            answer = self.tamper(message, answer)
            if self.lose_answer(message):
                continue
            self.carried.append(message_to_proto(answer).SerializeToString())
            self.answers.append(answer)
            answers.append(answer)
        return answers


def step_of(message: Message) -> str:
    """The step of the rounds of shards that a message asks for."""
    record = message.content.config_records.get("modelkin-shards")
    return "" if record is None else str(record["step"])


def grid_of(nodes: Iterable[int], train: Train | None = None, **settings: Any) -> RecordingGrid:
    """A grid of clients with ``ShardMod`` alone, which also take part in plain rounds."""
    settings = {"conceal": False, **settings}
    return RecordingGrid({node: app([ShardMod(**settings)], train) for node in nodes})


def averaging(kind: type[FedAvg] = FedAvg, **settings: Any) -> FedAvg:
    """A strategy that trains all nodes and evaluates none."""
    level = logging.getLogger("flwr").level
    logging.getLogger("flwr").setLevel(logging.ERROR)
    try:
        return kind(fraction_evaluate=0.0, **settings)
    finally:
        logging.getLogger("flwr").setLevel(level)


def sharded(
    reports: list[RoundReport] | None = None, inner: FedAvg | None = None, **settings: Any
) -> ShardedStrategy:
    """A strategy of three aggregators that does not wait."""
    return ShardedStrategy(
        inner or averaging(),
        on_round=None if reports is None else reports.append,
        **{"aggregators": 3, "patience": 0.2, **settings},
    )


def run(grid: LocalGrid, strategy: Strategy, rounds: int = 1) -> Result:
    """All rounds."""
    return strategy.start(grid=grid, initial_arrays=model(), num_rounds=rounds)


def exact(nodes: Iterable[int], rounds: int = 1) -> npt.NDArray[np.float64]:
    """The average model after some rounds, in float64."""
    nodes = list(nodes)
    found = vector(model()).astype(np.float64)
    total = sum(map(examples, nodes))
    for number in range(1, rounds + 1):
        for node in nodes:
            found += flat(update(node, number)) * (examples(node) / total)
    return found
