"""A federation that averages in shards, for Flower's own engines: apps, and what they must give.

``python -m tests.soak.federations.flower_federation`` runs it as a simulation on Ray.
``flower_engines`` makes the environment for it, and runs the same apps on a SuperLink.
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
from flwr.serverapp.strategy import FedAvg, Result

from modelkin.integrations.flower import RoundReport, ShardedStrategy, ShardMod

NUM_VALUES: Final = 100_003
CLIENTS: Final = 3
ROUNDS: Final = 3
FOLDER: Final = "MODELKIN_TEST_FOLDER"
"""The environment variable that names where results are written, and deaths are asked for."""

client = ClientApp(mods=[ShardMod(min_members=2)])
server = ServerApp()

Floats = npt.NDArray[np.float32]


def update(part: int, server_round: int) -> Floats:
    """What a client adds to the model in a round."""
    return np.random.default_rng([part, server_round]).normal(0, 0.05, NUM_VALUES).astype("f4")


def examples(part: int) -> int:
    """How many examples a client has."""
    return 10 + 7 * part


def expected(parts: list[int], server_round: int) -> npt.NDArray[np.float64]:
    """The average update of some clients, in float64."""
    weights = np.array([examples(part) for part in parts], float)
    return np.average([update(p, server_round).astype(float) for p in parts], 0, weights)


@client.train()
def train(message: Message, context: Context) -> Message:
    """Add this client's update; where a death is asked for, wait for it."""
    part = int(str(context.node_config["partition-id"]))
    server_round = int(str(message.content["config"]["server-round"]))
    mark = Path(os.environ[FOLDER]) / f"die-{part}-{server_round}"
    if mark.exists():
        mark.rename(mark.with_name(f"dying-{part}"))
        time.sleep(600)
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
    """All rounds."""
    reports: list[RoundReport] = []
    inner = FedAvg(min_train_nodes=2, min_available_nodes=2, fraction_evaluate=0.0)
    strategy = ShardedStrategy(
        inner,
        aggregators=CLIENTS,
        min_members=2,
        patience=60.0,
        on_round=reports.append,
    )
    while len(list(grid.get_node_ids())) < CLIENTS:
        time.sleep(0.5)
    models = [np.zeros(NUM_VALUES, "f4")]
    began = time.monotonic()
    result = strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord({"w": Array(models[0])}),
        num_rounds=ROUNDS,
        timeout=60.0,
        evaluate_fn=lambda number, arrays: models.append(arrays["w"].numpy()),
    )
    seconds = time.monotonic() - began
    np.save(folder / "models.npy", np.stack(models[1:]))
    rounds = [
        {
            "members": len(report.members),
            "who": who_was_in(result, report.server_round),
            "kept": dict(report.kept),
            "attempts": report.attempts,
            "bytes": report.bytes,
        }
        for report in reports
    ]
    (folder / "rounds.json").write_text(json.dumps({"rounds": rounds, "seconds": seconds}))


def who_was_in(result: Result, server_round: int) -> list[float]:
    """The share of each client in a round; nothing where nothing was averaged."""
    metrics = result.train_metrics_clientapp.get(server_round)
    return [] if metrics is None else list(metrics["who"])  # type: ignore[arg-type]


def check(folder: Path) -> list[str]:
    """A line for each round: who was in it, which share moved, and how far from float64.

    Raises:
        SystemExit: a coordinate that moved is not the members' average.
    """
    failure = folder / "error.txt"
    if failure.exists():
        raise SystemExit(failure.read_text())
    models = np.load(folder / "models.npy")
    found = json.loads((folder / "rounds.json").read_text())
    lines = []
    for number, report in enumerate(found["rounds"], 1):
        parts = [part for part, share in enumerate(report["who"]) if share > 0]
        if len(parts) < 2:
            raise SystemExit(f"round {number} averaged nothing: {report['kept']}")
        step = models[number].astype(float) - models[number - 1]
        moved = step != 0
        error = float(np.abs(step - expected(parts, number))[moved].max())
        share = (CLIENTS - len(report["kept"])) / CLIENTS
        if error > 1e-6 or abs(moved.mean() - share) > 1e-3:
            raise SystemExit(f"round {number}: error {error:.1e}, {moved.mean():.0%} moved")
        lines.append(
            f"round {number}: clients {parts}, {moved.mean():.0%} of the values moved, "
            f"{error:.1e} from float64, {report['bytes'] / 1e6:.1f} MB of cells"
        )
    return [*lines, f"{found['seconds']:.0f} s in all"]


def simulate() -> None:
    """Run all rounds on Ray."""
    from flwr.simulation import run_simulation

    resources: Any = {"num_cpus": 1, "num_gpus": 0.0}
    ray: Any = {"num_cpus": 2, "include_dashboard": False}
    backend = {"client_resources": resources, "init_args": ray}
    run_simulation(server, client, num_supernodes=CLIENTS, backend_config=backend)


if __name__ == "__main__":
    from tests.soak.federations import flower_federation  # Ray pickles it by this name

    flower_federation.simulate()
