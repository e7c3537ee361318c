"""Race Flower's rounds in one process: FedAvg, shards, concealed shards, and Flower's own SecAgg+.

Clients do not train: they add noise of their own. All parties run one after another, so seconds
are of all of them together; messages are serialized as on a network, and their bytes counted.
SecAgg+ is Flower's, in the legacy workflow: its Message API has none.
"""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from types import SimpleNamespace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, Strategy
from flwr.supercore.task_identity import TaskIdentity

from benchmarks.harness import Race, Spread
from benchmarks.report import Findings, Row, Table, at_most, duration
from modelkin.integrations.flower import ShardedStrategy, ShardMod

LIBRARIES = ("flwr", "numpy", "cryptography")

N, M, QUICK_M = 10, 1_000_000, 2_000
REPEATS, ROUNDS = 3, 2
AGGREGATORS = 5
PLAIN_OVER_FEDAVG = 2.0

FEDAVG: Final = "FedAvg"
PLAIN: Final = "shards"
CONCEALED: Final = "shards, concealed"
THINNED: Final = "shards, concealed, c = 16"
SECAGG: Final = "SecAgg+"

Floats = npt.NDArray[np.float32]


@dataclass
class Run:
    """The figures of one contender.

    Attributes:
        seconds: a round, of each repetition.
        error: the largest difference from the average in float64.
        up: bytes to the server, a round.
        down: bytes from the server, a round.
    """

    seconds: list[float] = field(default_factory=list)
    error: float = 0.0
    up: float = 0.0
    down: float = 0.0

    @property
    def megabytes(self) -> float:
        """Both ways, a round."""
        return (self.up + self.down) / 1e6


class CountingGrid(Grid):
    """Messages to apps in this process, as the bytes that a network would carry."""

    def __init__(self, apps: dict[int, ClientApp]) -> None:
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1  # the server's
        self._apps, self._ids = apps, count(1)
        self._contexts = {node: Context(1, node, {}, RecordDict(), {}) for node in apps}
        self.up = self.down = 0

    def set_run(self, run: Any) -> None:
        raise NotImplementedError("a CountingGrid answers send_and_receive alone")

    @property
    def run(self) -> Any:
        return SimpleNamespace(run_id=1, fab_id="", fab_version="", fab_hash="", override_config={})

    def create_message(self, *arguments: Any, **named: Any) -> Message:
        raise NotImplementedError("a CountingGrid answers send_and_receive alone")

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        raise NotImplementedError("a CountingGrid answers send_and_receive alone")

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        raise NotImplementedError("a CountingGrid answers send_and_receive alone")

    def get_node_ids(self) -> Iterable[int]:
        return list(self._apps)

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        del timeout
        return [self._answered(message) for message in messages]

    def _answered(self, message: Message) -> Message:
        sent, self.down = self._carried(message, self.down)
        node = message.metadata.dst_node_id
        answer = self._apps[node](sent, self._contexts[node])
        received, self.up = self._carried(answer, self.up)
        return received

    def _carried(self, message: Message, counted: int) -> tuple[Message, int]:
        message.metadata.__dict__["_message_id"] = str(next(self._ids))
        proto = message_to_proto(message)
        data = proto.SerializeToString()
        return message_from_proto(type(proto).FromString(data)), counted + len(data)


def run(quick: bool) -> Findings:
    """Race them in turn, and judge what the sharded ones are for."""
    size, repeats = (QUICK_M, 1) if quick else (M, REPEATS)
    contenders: dict[str, Callable[[], tuple[Floats, CountingGrid]]] = {
        FEDAVG: partial(_modern, size, sharded=None),
        PLAIN: partial(_modern, size, sharded={"conceal": False}),
        CONCEALED: partial(_modern, size, sharded={}),
        THINNED: partial(_modern, size, sharded={"one_in": 16}),
        SECAGG: partial(_secagg_plus, size),
    }
    runs, exact = {name: Run() for name in contenders}, _exact(size)
    with _silent():
        for _ in range(repeats):
            for name, contender in contenders.items():
                begin, found = time.perf_counter(), runs[name]
                model, grid = contender()
                found.seconds.append((time.perf_counter() - begin) / ROUNDS)
                found.up, found.down = grid.up / ROUNDS, grid.down / ROUNDS
                if name != THINNED:  # which estimates the average
                    found.error = float(np.abs(model - exact).max())
    return Findings(_judged(runs, size, judged=not quick), [_table(runs, size)])


# --- the parties ---------------------------------------------------------------------------------


def _step(node: int, size: int) -> Floats:
    return np.random.default_rng(node).normal(0, 0.05, size).astype(np.float32)


def _examples(node: int) -> int:
    return 10 + node


def _exact(size: int) -> npt.NDArray[np.float64]:
    """The model after all rounds in float64."""
    found, nodes = np.zeros(size), range(1, N + 1)
    total = sum(map(_examples, nodes))
    for node in nodes:
        found += ROUNDS * _examples(node) / total * _step(node, size).astype(np.float64)
    return found


def _modern(size: int, *, sharded: dict[str, Any] | None) -> tuple[Floats, CountingGrid]:
    """Rounds of the Message API."""
    grid = CountingGrid({node: _app(sharded is not None, size) for node in range(1, N + 1)})
    strategy: Strategy = FedAvg(
        fraction_train=1.0, fraction_evaluate=0.0, min_available_nodes=N, min_train_nodes=N
    )
    if sharded is not None:
        strategy = ShardedStrategy(strategy, aggregators=AGGREGATORS, **sharded)
    start = ArrayRecord({"w": Array(np.zeros(size, np.float32))})
    result = strategy.start(grid=grid, initial_arrays=start, num_rounds=ROUNDS)
    model: Floats = result.arrays["w"].numpy()
    return model, grid


def _app(sharded: bool, size: int) -> ClientApp:
    app = ClientApp(mods=[ShardMod(conceal=False)] if sharded else [])

    @app.train()
    def train(message: Message, context: Context) -> Message:
        model = message.content.array_records["arrays"]["w"].numpy() + _step(context.node_id, size)
        records: dict[str, Any] = {
            "arrays": ArrayRecord({"w": Array(model)}),
            "metrics": MetricRecord({"num-examples": _examples(context.node_id)}),
        }
        return Message(RecordDict(records), reply_to=message)

    return app


def _secagg_plus(size: int) -> tuple[Floats, CountingGrid]:
    """Rounds of Flower's SecAgg+, as far as its defaults have them."""
    from flwr.client import NumPyClient
    from flwr.client.mod import secaggplus_mod
    from flwr.common import ndarrays_to_parameters, parameters_to_ndarrays
    from flwr.server import LegacyContext, ServerConfig
    from flwr.server.strategy import FedAvg as LegacyFedAvg
    from flwr.server.workflow import DefaultWorkflow, SecAggPlusWorkflow

    class Client(NumPyClient):
        def __init__(self, node: int) -> None:
            self.node = node

        def fit(self, parameters: Any, config: Any) -> Any:
            del config
            return [parameters[0] + _step(self.node, size)], _examples(self.node), {}

    models: list[Floats] = []

    class Kept(LegacyFedAvg):
        def aggregate_fit(self, server_round: int, results: Any, failures: Any) -> Any:
            found = super().aggregate_fit(server_round, results, failures)
            assert found[0] is not None, "all clients reply"
            models.append(parameters_to_ndarrays(found[0])[0])
            return found

    app = ClientApp(
        client_fn=lambda context: Client(context.node_id).to_client(), mods=[secaggplus_mod]
    )
    grid = CountingGrid(dict.fromkeys(range(1, N + 1), app))
    strategy = Kept(
        fraction_fit=1.0, fraction_evaluate=0.0, min_available_clients=N, min_fit_clients=N,
        initial_parameters=ndarrays_to_parameters([np.zeros(size, np.float32)]),
    )  # fmt: skip
    context = LegacyContext(
        context=Context(1, 1, {}, RecordDict(), {}),
        config=ServerConfig(num_rounds=ROUNDS),
        strategy=strategy,
    )
    workflow = SecAggPlusWorkflow(num_shares=7, reconstruction_threshold=4)
    DefaultWorkflow(fit_workflow=workflow)(grid, context)
    return models[-1], grid


@contextmanager
def _silent() -> Iterator[None]:
    """Flower logs every round, and warns of its own legacy."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


# --- what is reported ----------------------------------------------------------------------------


def _judged(runs: dict[str, Run], size: int, *, judged: bool) -> list[Row]:
    race = Race({name: run.seconds for name, run in runs.items()})
    what = f"n = {N}, M = {size:,}"
    hidden, secagg = runs[CONCEALED], runs[SECAGG]
    if not judged:
        return []
    rows = [
        at_most(
            f"{what}: {name}, time of a round",
            duration(race.seconds(name).median),
            f"{other}: {duration(race.seconds(other).median)}",
            race.ratio(name, other),
            target,
        )
        for name, other, target in (
            (PLAIN, FEDAVG, PLAIN_OVER_FEDAVG),
            (CONCEALED, SECAGG, 1.0),
        )
    ]
    for figure, ours, theirs, unit in (
        (
            "bytes of a round",
            (hidden.up + hidden.down) / 1e6,
            (secagg.up + secagg.down) / 1e6,
            "MB",
        ),
        ("error", hidden.error, secagg.error, ""),
    ):
        ratio = ours / theirs
        rows.append(
            Row(
                f"{what}: {CONCEALED}, {figure}",
                f"{ours:.3g} {unit}".strip(),
                f"{SECAGG}: {theirs:.3g} {unit}".strip(),
                f"{ratio:.2g}×",
                "≤ 1×",
                ratio <= 1,
            )
        )
    return rows


def _table(runs: dict[str, Run], size: int) -> Table:
    rows = [
        [
            name,
            duration(Spread.of(run.seconds).median),
            f"{run.up / 1e6:.1f} MB",
            f"{run.down / 1e6:.1f} MB",
            "" if name == THINNED else f"{run.error:.1e}",
        ]
        for name, run in runs.items()
    ]
    return Table(
        f"A round of {N} clients and {AGGREGATORS} aggregators, M = {size:,}, all parties in one "
        f"process",
        ["", "time of all parties", "to the server", "from the server", "largest error"],
        rows,
    )
