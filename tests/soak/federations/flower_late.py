"""A federation with a client that is slower than its rounds, for Flower's SuperLink.

One of four clients trains for as long as some rounds, which are closed by time. Its SuperNode takes
its messages one by one, each in a process of its own, and the update counts in a later round.
"""

from __future__ import annotations

import json
import os
import time
import traceback
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from modelkin.federation.buffer import staleness_weight
from modelkin.integrations.flower import RoundReport, ShardedStrategy, ShardMod
from tests.soak.federations.flower_federation import (
    FOLDER,
    NUM_VALUES,
    examples,
    update,
    who_was_in,
)

CLIENTS: Final = 4
SLOW: Final = 3
ROUNDS: Final = 3
LATE: Final = 2
"""The slow client trains until so many rounds are over."""
ROUND_S: Final = 90.0


def mod(context: Context) -> ShardMod:
    """The mod of a client; the slow one holds no shard."""
    own = context.node_config["partition-id"] != SLOW
    return ShardMod(may_aggregate=own, max_staleness=10)


client = ClientApp(mods=[lambda message, context, app: mod(context)(message, context, app)])
server = ServerApp()


@client.train()
def train(message: Message, context: Context) -> Message:
    """Add this client's update; the slow one takes its time."""
    part = int(str(context.node_config["partition-id"]))
    server_round = int(str(message.content["config"]["server-round"]))
    folder = Path(os.environ[FOLDER])
    (folder / f"trained-{part}-{server_round}").touch()
    while part == SLOW and not (folder / f"closed-{LATE}").exists():
        time.sleep(0.5)
    arrays = message.content.array_records["arrays"]
    new = Array(arrays["w"].numpy() + update(part, server_round))
    who = [float(part == other) for other in range(CLIENTS)]
    metrics = MetricRecord({"num-examples": examples(part), "who": who})
    records: dict[str, Any] = {"arrays": ArrayRecord({"w": new}), "metrics": metrics}
    return Message(RecordDict(records), reply_to=message)


@server.main()
def main(grid: Grid, context: Context) -> None:
    """All rounds; the models and the reports are written, or why they are not."""
    folder = Path(os.environ[FOLDER])
    try:
        lead(grid, folder)
    except BaseException:
        (folder / "error.txt").write_text(traceback.format_exc())
        raise


def lead(grid: Grid, folder: Path) -> None:
    """All rounds, each closed by time."""
    reports: list[RoundReport] = []

    def note(report: RoundReport) -> None:
        reports.append(report)
        (folder / f"closed-{report.server_round}").touch()

    strategy = ShardedStrategy(
        FedAvg(min_train_nodes=3, min_available_nodes=CLIENTS, fraction_evaluate=0.0),
        aggregators=3,
        patience=ROUND_S,
        on_round=note,
    )
    while len(list(grid.get_node_ids())) < CLIENTS:
        time.sleep(0.5)
    models = [np.zeros(NUM_VALUES, "f4")]
    result = strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord({"w": Array(models[0])}),
        num_rounds=ROUNDS,
        timeout=ROUND_S,
        evaluate_fn=lambda number, arrays: models.append(arrays["w"].numpy()),
    )
    np.save(folder / "models.npy", np.stack(models[1:]))
    rounds = [
        [who_was_in(result, report.server_round), list(report.staleness.values())]
        for report in reports
    ]
    (folder / "rounds.json").write_text(json.dumps(rounds))


def check(folder: Path) -> list[str]:
    """A line for each round: who was in it, how late, and how far from float64.

    Raises:
        SystemExit: a round is not the mean of its members.
    """
    failure = folder / "error.txt"
    if failure.exists():
        raise SystemExit(failure.read_text())
    models = np.load(folder / "models.npy")
    lines = []
    for number, (who, late) in enumerate(json.loads((folder / "rounds.json").read_text()), 1):
        parts, age = [part for part, share in enumerate(who) if share > 0], sum(late)
        step = models[number].astype(float) - models[number - 1]
        error = float(np.abs(step - expected(parts, number, age)).max()) if parts else 0.0
        if not parts or error > 1e-6:
            raise SystemExit(f"round {number}: clients {parts}, error {error:.1e}")
        words = f", the last {age} rounds late" if age else ""
        lines.append(f"round {number}: clients {parts}{words}, {error:.1e} from float64")
    trained = sorted(int(each.name.split("-")[2]) for each in folder.glob(f"trained-{SLOW}-*"))
    return [*lines, f"the slow client trained in rounds {trained}"]


def expected(parts: list[int], server_round: int, age: int) -> npt.NDArray[np.float64]:
    """The step of a round in float64, where the slow client's update is so many rounds old."""
    total, found = sum(map(examples, parts)), np.zeros(NUM_VALUES)
    for part in parts:
        late = age if part == SLOW else 0
        share = staleness_weight(late) * examples(part) / total
        found += share * update(part, server_round - late).astype(float)
    return found
