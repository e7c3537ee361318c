"""Clients that share a part of three layers: fixed updates, data in two groups, and a Grid."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.serde import message_to_proto
from flwr.serverapp.strategy import Result, Strategy

from modelkin import Subspace, fit_subspace
from modelkin.integrations.flower import DataMod, LearngeneMod, ShardMod
from tests.sdk.integrations.flower.shards.sharded_federation import RecordingGrid, averaging

Floats = npt.NDArray[np.float32]
Train = Callable[[int, dict[str, Any]], dict[str, Any]]

SHAPES = {
    "first.weight": (6, 5),
    "first.bias": (6,),
    "second.weight": (4, 6),
    "head.weight": (3, 4),
}
SHARED = ["first.weight", "first.bias"]
PRIVATE = ["second.weight", "head.weight"]
NODES = range(1, 9)


def values(seed: int = 3) -> dict[str, Floats]:
    """A model of three layers."""
    rng = np.random.default_rng(seed)
    return {name: rng.normal(0, 1, shape).astype(np.float32) for name, shape in SHAPES.items()}


def model() -> ArrayRecord:
    """The model that all rounds begin with."""
    return ArrayRecord({name: Array(each) for name, each in values().items()})


def own(node: int) -> dict[str, Floats]:
    """The model whose private layers a node begins with."""
    return values(1000 + node)


def examples(node: int) -> int:
    """How many examples a client has."""
    return 10 + 7 * node


def step(node: int) -> dict[str, Any]:
    """What a client adds to its model in each round."""
    rng = np.random.default_rng(node)
    return {name: rng.normal(0, 0.05, shape) for name, shape in SHAPES.items()}


def group(node: int) -> int:
    """The planted group of a node's data."""
    return node % 2


def subspace(node: int) -> Subspace:
    """Of a node's data: samples of one of two groups of directions."""
    rng = np.random.default_rng([7, node])
    basis = np.random.default_rng([8, group(node)]).normal(size=(4, 32))
    return fit_subspace(rng.normal(size=(200, 4)) @ basis + 0.1 * rng.normal(size=(200, 32)))


def data_mod() -> DataMod:
    """A mod that answers with the subspace of its node."""
    return DataMod(lambda context: subspace(context.node_id))


def learngene_mod(node: int, **settings: Any) -> LearngeneMod:
    """A mod that shares the first layer alone."""
    return LearngeneMod(lambda: own(node), **{"depth": 1, **settings})


def app(mods: list[Any], change: Train | None = None) -> ClientApp:
    """A client that adds its step to the whole model that it gets, or what ``change`` makes."""
    found = ClientApp(mods=mods)

    @found.train()
    def train(message: Message, context: Context) -> Message:
        got, node = arrays_of(message), context.node_id
        new = {n: (v + step(node)[n]).astype(np.float32) for n, v in got.items()}
        new = new if change is None else change(node, new)
        metrics = new.pop("metrics", {"num-examples": examples(node)})
        records: dict[str, Any] = {"metrics": MetricRecord(metrics)}
        records["arrays"] = ArrayRecord({n: Array(v) for n, v in new.items()})
        return Message(RecordDict(records), reply_to=message)

    @found.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        total = float(sum(each.sum() for each in arrays_of(message).values()))
        metrics: dict[str, Any] = {"num-examples": examples(context.node_id), "total": total}
        return Message(RecordDict({"metrics": MetricRecord(metrics)}), reply_to=message)

    return found


def arrays_of(message: Message) -> dict[str, Any]:
    """The values of a message's one record of arrays."""
    (arrays,) = message.content.array_records.values()
    return {name: array.numpy() for name, array in arrays.items()}


class NotingGrid(RecordingGrid):
    """A RecordingGrid that notes what answers were before a strategy changes them."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.up: dict[int, int] = {}
        self.returned: set[str] = set()

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        answers = list(super().send_and_receive(messages, timeout=timeout))
        for answer in answers:
            node = answer.metadata.src_node_id
            self.up[node] = self.up.get(node, 0) + size(answer)
            if answer.has_content():
                records = answer.content.array_records.values()
                self.returned.update(name for record in records for name in record)
        return answers


def grid_of(
    nodes: Iterable[int] = NODES,
    *,
    change: Train | None = None,
    shards: bool = False,
    **settings: Any,
) -> NotingGrid:
    """A grid of clients with the mods that are asked for, in the order that the docs give."""

    def mods(node: int) -> list[Any]:
        return [
            data_mod(),
            *([ShardMod(conceal=False)] if shards else []),
            learngene_mod(node, **settings),
        ]

    return NotingGrid({node: app(mods(node), change) for node in nodes})


def run(grid: RecordingGrid, strategy: Strategy, rounds: int = 1) -> Result:
    """All rounds."""
    return strategy.start(grid=grid, initial_arrays=model(), num_rounds=rounds)


def trainings(grid: RecordingGrid) -> list[Message]:
    """All training messages that carried arrays to a node."""
    return [
        message
        for message in grid.sent
        if message.metadata.message_type == "train" and message.content.array_records
    ]


def size(message: Message) -> int:
    """The bytes of a message as Flower serialises it."""
    return len(message_to_proto(message).SerializeToString())


def floats_of(arrays: ArrayRecord) -> dict[str, Any]:
    """The values of a record."""
    return {name: array.numpy() for name, array in arrays.items()}


__all__ = [
    "NODES",
    "PRIVATE",
    "SHARED",
    "SHAPES",
    "app",
    "arrays_of",
    "averaging",
    "data_mod",
    "examples",
    "floats_of",
    "grid_of",
    "group",
    "learngene_mod",
    "model",
    "own",
    "run",
    "size",
    "step",
    "subspace",
    "trainings",
    "values",
]
