"""A federation by data that shares learngenes, for Flower's own engines: apps, and what must hold.

Clients of two groups of data keep all layers but the first. One is killed while it trains, and one
joins late. Every client writes what its app received and made of it; the server writes what went
over its grid, and the clusters. ``check`` compares the two.

``python -m tests.soak.federations.flower_learngenes`` runs it as a simulation on Ray.
``flower_engines`` makes the environment for it, and runs the same apps on a SuperLink.
"""

from __future__ import annotations

import json
import os
import time
import traceback
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.serde import message_to_proto
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from modelkin import Subspace, fit_subspace
from modelkin.integrations.flower import (
    ClusteredStrategy,
    DataMod,
    LearngeneMod,
    LearngeneStrategy,
    RoundClusters,
)

CLIENTS: Final = 7
ROUNDS: Final = 4
FOLDER: Final = "MODELKIN_TEST_FOLDER"
"""The environment variable that names where results are written, and deaths are asked for."""

SHAPES: Final = {"first.weight": (40, 250), "second.weight": (80, 40), "head.weight": (10, 80)}
SHARED: Final = "first.weight"
PRIVATE: Final = ("second.weight", "head.weight")
_DEATH, _JOIN = 2, 3
"""The rounds in which a client is killed, and another one is first there."""

Model = dict[str, npt.NDArray[Any]]


def drawn(*seed: int, scale: float = 1.0) -> Model:
    """Random values for all arrays."""
    rng = np.random.default_rng(seed)
    return {name: rng.normal(0, scale, shape).astype("f4") for name, shape in SHAPES.items()}


def part_of(context: Context) -> int:
    """Which part of the data a node has."""
    return int(str(context.node_config["partition-id"]))


def fit(context: Context) -> Subspace:
    """The subspace of a node's data: even parts have other directions than odd ones."""
    part = part_of(context)
    (folder() / f"node-{context.node_id}").write_text(str(part))
    basis = np.random.default_rng([8, part % 2]).normal(size=(4, 64))
    rng = np.random.default_rng([7, part])
    return fit_subspace(rng.normal(size=(200, 4)) @ basis + 0.1 * rng.normal(size=(200, 64)))


def folder() -> Path:
    """Where all parties write."""
    return Path(os.environ[FOLDER])


client = ClientApp(mods=[DataMod(fit), LearngeneMod(lambda: drawn(1), depth=1)])
server = ServerApp()


@client.train()
def train(message: Message, context: Context) -> Message:
    """Add random values to the whole model; where an end is asked for, fail or wait for it."""
    part = part_of(context)
    number = int(str(message.content["config"]["server-round"]))
    end(part, number)
    arrays = message.content.array_records["arrays"]
    got = {name: arrays[name].numpy() for name in arrays}
    step = drawn(part, number, scale=0.05)
    made = {name: values + step[name] for name, values in got.items()}
    kept = {f"{when}/{n}": v for when, m in (("got", got), ("made", made)) for n, v in m.items()}
    save(f"client-{part}-{number}", kept)
    new = ArrayRecord({name: Array(values) for name, values in made.items()})
    metrics = MetricRecord({"num-examples": examples(part)})
    return Message(RecordDict({"arrays": new, "metrics": metrics}), reply_to=message)


def end(part: int, number: int) -> None:
    """Fail, or wait for the end of this process, where that is asked for.

    Flower's simulation does not replace a process that was killed: all its later messages fail.
    """
    mark = folder() / f"die-{part}-{number}"
    if not mark.exists():
        return
    fails = mark.read_text() == "fail"
    mark.rename(mark.with_name(f"dying-{part}"))
    if fails:
        raise RuntimeError("out of memory")
    time.sleep(600)


def examples(part: int) -> int:
    """How many examples a client has."""
    return 10 + 7 * part


def save(name: str, arrays: Any) -> None:
    """Write arrays."""
    np.savez(folder() / f"{name}.npz", **arrays)


class Recorder:
    """A Grid that keeps what it carries, and shows one node only when it may join.

    Args:
        grid: of the run.
        hides: whether a node that is there from the beginning is hidden until then.
    """

    def __init__(self, grid: Grid, *, hides: bool) -> None:
        self._grid = grid
        self.carried: list[bytes] = []
        self.hidden = {max(grid.get_node_ids())} if hides else set[int]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._grid, name)

    def get_node_ids(self) -> list[int]:
        """All but the hidden one."""
        return sorted(set(self._grid.get_node_ids()) - self.hidden)

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> list[Message]:
        """As the grid does, kept."""
        sent = list(messages)
        answers = list(self._grid.send_and_receive(sent, timeout=timeout))
        self.carried += [message_to_proto(each).SerializeToString() for each in (*sent, *answers)]
        return answers


@dataclass
class Story:
    """What the server asks for between rounds, and notes of each.

    Attributes:
        grid: of the run.
        fails: whether a client that is to die fails instead.
        rounds: what was found in each.
    """

    grid: Recorder
    fails: bool
    strategy: ClusteredStrategy = field(init=False)
    inner: LearngeneStrategy = field(init=False)
    rounds: list[dict[str, Any]] = field(default_factory=list)

    def note(self, found: RoundClusters) -> None:
        """Write the models of the clusters; ask for a death, or wait for who joins."""
        models = {str(c): m[SHARED].numpy() for c, m in self.strategy.cluster_arrays.items()}
        save(f"clusters-{found.server_round}", models)
        self.rounds.append(
            {
                "clusters": {str(c): list(nodes) for c, nodes in found.members.items()},
                "left_out": {
                    str(node): why
                    for node, why in (*found.left_out.items(), *self.inner.left_out.items())
                },
            }
        )
        if found.server_round == _DEATH - 1:
            node = max(found.members.values(), key=len)[0]
            mark = folder() / f"die-{(folder() / f'node-{node}').read_text()}-{_DEATH}"
            mark.write_text("fail" if self.fails else "")
        if found.server_round == _JOIN - 1:
            self.join(set(found.nodes))

    def join(self, known: set[int]) -> None:
        """Show the hidden node, or wait for a new one."""
        self.grid.hidden = set()
        (folder() / "join").touch()
        while not set(self.grid.get_node_ids()) - known:
            time.sleep(0.5)


@server.main()
def main(grid: Grid, context: Context) -> None:
    """All rounds; what was found is written, or why nothing was."""
    try:
        lead(grid)
    except BaseException:
        (folder() / "error.txt").write_text(traceback.format_exc())
        raise


def lead(grid: Grid) -> None:
    """All rounds."""
    simulated = not (folder() / "superlink.log").exists()
    while len(list(grid.get_node_ids())) < CLIENTS - (not simulated):
        time.sleep(0.5)
    story = Story(Recorder(grid, hides=simulated), fails=simulated)
    story.inner = LearngeneStrategy(
        FedAvg(min_train_nodes=2, min_available_nodes=2, fraction_evaluate=0.0),
        depth=1,
        tighten=0,
        min_members=2,
        save=folder() / "genes",
    )
    # Where a SuperNode is killed, its round takes all of it; in a simulation every client answers.
    wait = 180.0 if simulated else 40.0
    story.strategy = ClusteredStrategy(
        story.inner, by="data", per_cluster=True, patience=wait, on_clusters=story.note
    )
    began = time.monotonic()
    whole: Any = story.grid
    model = ArrayRecord({name: Array(values) for name, values in drawn(0).items()})
    story.strategy.start(whole, model, ROUNDS, timeout=wait)
    (folder() / "carried.bin").write_bytes(b"".join(story.grid.carried))
    found = {
        "rounds": story.rounds,
        "bytes": sum(cost.total for cost in story.strategy.costs.values()),
        "seconds": time.monotonic() - began,
    }
    (folder() / "rounds.json").write_text(json.dumps(found))


class Findings:
    """What all parties wrote, and whether it fits together.

    Args:
        path: where.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        failure = path / "error.txt"
        if failure.exists():
            raise SystemExit(failure.read_text())
        self._found = json.loads((path / "rounds.json").read_text())
        self._carried = (path / "carried.bin").read_bytes()
        self._part = {
            each.name.removeprefix("node-"): int(each.read_text()) for each in path.glob("node-*")
        }
        self._calls = {
            tuple(map(int, each.stem.split("-")[1:])): dict(np.load(each))
            for each in path.glob("client-*.npz")
        }
        self._private: dict[int, Model] = {}

    def lines(self) -> list[str]:
        """A line for each round, and one for all.

        Raises:
            SystemExit: something does not hold.
        """
        noted = len(self._found["rounds"])
        held(noted == ROUNDS, f"{noted} of {ROUNDS} rounds: clients did not answer in time")
        lines = [self._line(number) for number in range(1, ROUNDS + 1)]
        held(len(self._carried) == self._found["bytes"], "the costs are not those of the messages")
        return [*lines, f"{self._found['bytes']} bytes, {self._found['seconds']:.0f} s in all"]

    def _line(self, number: int) -> str:
        found = self._found["rounds"][number - 1]
        clusters = {
            cluster: sorted(self._part[str(node)] for node in nodes)
            for cluster, nodes in found["clusters"].items()
        }
        left_out = {self._part[node]: why for node, why in found["left_out"].items()}
        models = np.load(self._path / f"clusters-{number}.npz")
        error = 0.0
        for cluster, parts in clusters.items():
            counted = [part for part in parts if part not in left_out]
            held(len(counted) > 1, f"round {number}: cluster {cluster} has no average")
            for part in counted:
                self._follow(number, part, cluster)
            made = [self._calls[part, number][f"made/{SHARED}"].astype(float) for part in counted]
            mean = np.average(made, axis=0, weights=[examples(part) for part in counted])
            error = max(error, float(np.abs(models[cluster] - mean).max()))
        held(error < 1e-6, f"round {number}: learngenes are {error:.1e} from float64")
        who = " and ".join(map(str, clusters.values()))
        why = ", ".join(f"{part} left out: {text[-60:]}" for part, text in left_out.items())
        return f"round {number}: {who}, {error:.1e} from float64{why and '; '}{why}"

    def _follow(self, number: int, part: int, cluster: str) -> None:
        """A client gets its cluster's learngene, and its own other layers as it left them."""
        call = self._calls[part, number]
        before = self._path / f"clusters-{number - 1}.npz"
        shared = np.load(before)[cluster] if number > 1 else drawn(0)[SHARED]
        held(same(call[f"got/{SHARED}"], shared), f"round {number}: {part} got another learngene")
        for name in PRIVATE:
            own = self._private.get(part, drawn(1))[name]
            held(same(call[f"got/{name}"], own), f"round {number}: {part} lost its {name}")
            made = call[f"made/{name}"]
            held(made.tobytes() not in self._carried, f"round {number}: {name} left {part}")
        held(call[f"made/{SHARED}"].tobytes() in self._carried, f"{part} sent no learngene")
        self._private[part] = {name: call[f"made/{name}"] for name in PRIVATE}


def same(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> bool:
    """Whether two arrays have the same bytes."""
    return one.tobytes() == other.tobytes()


def held(claim: bool, otherwise: str) -> None:
    """Raise SystemExit where a claim does not hold."""
    if not claim:
        raise SystemExit(otherwise)


def check(path: Path) -> list[str]:
    """What was found, after all claims were checked."""
    return Findings(path).lines()


def simulate() -> None:
    """Run all rounds on Ray."""
    from flwr.simulation import run_simulation

    resources: Any = {"num_cpus": 1, "num_gpus": 0.0}
    ray: Any = {"num_cpus": 2, "include_dashboard": False}
    backend = {"client_resources": resources, "init_args": ray}
    run_simulation(server, client, num_supernodes=CLIENTS, backend_config=backend)


if __name__ == "__main__":
    from tests.soak.federations import flower_learngenes  # Ray pickles it by this name

    flower_learngenes.simulate()
