"""Measure time to an accuracy, with and without rounds, where a tenth of the clients is slow.

These take ten times as long. Time is simulated: a quick client trains for about one unit, and
messages take none. Steps without rounds are the product's, and so is what a late update counts.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final

import numpy as np
import numpy.typing as npt
import torch

from benchmarks.report import Findings, Row, Table
from demo.cohort import Cohort, Weights
from demo.planted import GROUPS
from modelkin.core.clustering.linkage import Division
from modelkin.core.packed import PackedSupport
from modelkin.core.selection.selection import select_support
from modelkin.core.similarity.matrix import matrix
from modelkin.federation.buffer import ModelBuffer, Update
from modelkin.integrations.federation.buffered_models import BufferedModels
from studies.federations import Federation
from studies.measures import interval, mean_of, paired
from studies.settings import Setting

LIBRARIES = ("numpy", "torch", "scikit-learn")

SEEDS: Final = 5
CLIENTS: Final = 20
SLOW: Final = 2
SLOWER: Final = 10
EPOCHS, RATE = 1, 0.02
"""Of a client's training."""
END: Final = 32
"""Units of time of a run: quick clients train for about one."""
LONG: Final = 8
"""Rounds that wait for all run so many times as long."""
SETTLED: Final = 24
"""Units after which the lowest accuracy is looked for."""
DEADLINE: Final = 1.5

IID, MIXED, TURNED = "iid", "dirichlet 0.3", "rotations"
WORDS: Final = {
    IID: "even: IID",
    MIXED: "labels mixed: Dir(0.3)",
    TURNED: "images turned, a model for each cluster",
}
TARGET: Final = 0.8

COLUMNS: Final = {
    "time": f"time to {TARGET}",
    "lowest": f"lowest from {SETTLED}",
    "end": "at the end",
    "slow": "the slow",
    "kin": "their group",
    "share": "share",
}
"""What is noted of each run, and its heading."""

Arrays = Mapping[str, npt.NDArray[np.float32]]
Integers = npt.NDArray[np.int64]
Found = dict[tuple[str, str, str], list[float]]
"""Figures of all seeds by what is measured, the scenario and the way."""


@dataclass(frozen=True, slots=True)
class Way:
    """A way to train.

    Attributes:
        name: in the tables.
        size: the updates of a step; 0 for rounds.
        rate: the server's learning rate.
        deadline: the time after which a round is closed.
        counts_late: whether who is late trains on, and counts in a later round.
    """

    name: str
    size: int = 0
    rate: float = 1.0
    deadline: float = float("inf")
    counts_late: bool = False


ROUNDS: Final = Way("rounds that wait")
CLOSED: Final = Way(f"closed after {DEADLINE}", deadline=DEADLINE)
LATE: Final = Way("closed, late ones later", deadline=DEADLINE, counts_late=True)


def _steps(size: int, rate: float = 1.0) -> Way:
    at = "" if rate == 1 else f", rate {rate}"
    return Way(f"steps of {size}{at}", size, rate)


ONE_MODEL: Final = (_steps(5), _steps(5, 0.5), _steps(10), _steps(14))
IN_CLUSTERS: Final = (_steps(2), _steps(2, 0.5), _steps(3), _steps(4))


def ways_of(scenario: str) -> tuple[Way, ...]:
    """What is measured on a scenario."""
    return (ROUNDS, CLOSED, LATE, *(IN_CLUSTERS if scenario == TURNED else ONE_MODEL))


class Clients:
    """Clients that train models side by side, as soon as one of them is waited for.

    Args:
        federation: their samples.
        groups: the group of each client, ``(N,)``.
        slow: which clients are slow, ``(N,)``.
    """

    def __init__(
        self, federation: Federation, groups: Integers, slow: npt.NDArray[np.bool_]
    ) -> None:
        self._federation, self.groups, self.slow = federation, groups, slow
        self._cohort = Cohort(federation.model, federation.samples, federation.labels)
        self.first = {n: v[0].numpy().copy() for n, v in federation.start.items()}
        self.begin()

    def begin(self) -> None:
        """Begin a run, with the batches and times of all runs."""
        seed = self._federation.setting.seed
        self._generator = torch.Generator().manual_seed(seed)
        self._rng = np.random.default_rng([seed, 5])
        self._asked: dict[int, Arrays] = {}
        self._trained: dict[int, Arrays] = {}
        self.counted = np.zeros(len(self.slow))
        """What the updates of each client have counted in all steps so far."""

    def ask(self, client: int, model: Arrays) -> float:
        """Let a client train a model; return how long that takes."""
        self._asked[client] = model
        return float(self._rng.uniform(0.8, 1.2) * (SLOWER if self.slow[client] else 1))

    def trained(self, client: int) -> Arrays:
        """What a client has made of its model."""
        if client not in self._trained:
            asked = sorted(self._asked)
            weights = _stacked([self._asked[each] for each in asked])
            held = self._federation
            some = Cohort(held.model, held.samples[asked], held.labels[asked])
            some.train(weights, EPOCHS, self._generator, rate=RATE)
            for at, each in enumerate(asked):
                self._trained[each] = {n: v[at].numpy() for n, v in weights.items()}
            self._asked = {}
        return self._trained.pop(client)

    def accuracies(self, models: Mapping[int, Arrays]) -> npt.NDArray[np.float64]:
        """Of each client on its own test samples, with the model of its group."""
        weights = _stacked([models.get(g, self.first) for g in self.groups.tolist()])
        held = self._federation
        found = self._cohort.accuracies(weights, held.test_samples, held.test_labels)
        return np.asarray(found.numpy())


def _stacked(models: Sequence[Arrays]) -> Weights:
    return {name: torch.from_numpy(np.stack([each[name] for each in models])) for name in models[0]}


def run(quick: bool) -> Findings:
    """Train all federations in all ways."""
    torch.set_num_threads(1)
    found: Found = defaultdict(list)
    for scenario, seed in product(WORDS, range(1 if quick else SEEDS)):
        measure(found, scenario, seed, 3 if quick else END)
    return Findings([] if quick else judged(found), tables(found))


def measure(found: Found, scenario: str, seed: int, end: int) -> None:
    """Note what becomes of the accuracies of all clients."""
    clients = clients_of(scenario, seed)
    kin = np.isin(clients.groups, clients.groups[clients.slow]) & ~clients.slow
    for way in ways_of(scenario):
        clients.begin()
        last = end * LONG if way == ROUNDS else end
        seen = np.array(list(accuracies(clients, way, last)))
        reached = np.flatnonzero(seen.mean(1) >= TARGET)
        figures = {
            "time": float(reached[0] + 1) if reached.size else float("inf"),
            "end": seen[-3:].mean(),
            "lowest": seen[min(SETTLED, end - 1) :].mean(1).min(),
            "slow": seen[-3:, clients.slow].mean(),
            "kin": seen[-3:, kin].mean(),
            "share": clients.counted[clients.slow].sum() / clients.counted.sum(),
        }
        for name, value in figures.items():
            found[name, scenario, way.name].append(float(value))


def accuracies(clients: Clients, way: Way, end: int) -> Iterator[npt.NDArray[np.float64]]:
    """The accuracies of all clients at each unit of time."""
    moments = _in_steps(clients, way) if way.size else _in_rounds(clients, way)
    models, (time, later) = dict[int, Arrays](), next(moments)
    for unit in range(1, end + 1):
        while time <= unit:
            models, (time, later) = later, next(moments)
        yield clients.accuracies(models)


def _in_rounds(clients: Clients, way: Way) -> Iterator[tuple[float, dict[int, Arrays]]]:
    """When each round ends, and the groups' models then; who is late may count in a later one."""
    groups, bound = clients.groups.tolist(), END * CLIENTS
    buffers = {g: ModelBuffer(clients.first, size=1, max_staleness=bound) for g in set(groups)}
    ends, begun = dict[int, float](), dict[int, tuple[int, Arrays]]()
    now = 0.0
    while True:
        for client, group in enumerate(groups):
            if client not in ends or not way.counts_late:
                buffer = buffers[group]
                ends[client] = now + clients.ask(client, buffer.model)
                begun[client] = buffer.version, buffer.model
        end = min(now + way.deadline, max(ends.values()))
        in_time = [client for client in sorted(ends) if ends[client] <= end]
        for client in in_time:
            version, received = begun[client]
            update = Update(version, received, clients.trained(client), 1.0)
            buffers[groups[client]].add(f"{client:02}", update)
            del ends[client]
        for buffer in buffers.values():
            step = buffer.step() if len(buffer) else []
            for each in step:
                clients.counted[int(each.client)] += each.share * len(step)
        now = end
        yield now, {group: buffer.model for group, buffer in buffers.items()}


def _in_steps(clients: Clients, way: Way) -> Iterator[tuple[float, dict[int, Arrays]]]:
    """When each step is taken, and the groups' models then."""
    groups = clients.groups.tolist()
    everyone = range(len(groups))
    models = BufferedModels(
        clients.first,
        size=way.size,
        max_staleness=END * CLIENTS,
        rate=way.rate,
        group_of=groups.__getitem__,
    )
    ends, now = list[tuple[float, int]](), 0.0
    while True:
        for client in everyone:
            lent = models.offer(client)
            if lent is not None:
                heapq.heappush(ends, (now + clients.ask(client, lent.model), client))
                models.lend(client, lent)
        now, client = heapq.heappop(ends)
        models.take(client, clients.trained(client), 1.0)
        for group in models.ready(everyone):
            for each in models.step(group)[1]:
                clients.counted[int(each.client)] += each.share
            yield now, {g: model for g, model in models.models.items() if g is not None}


# --- figures -------------------------------------------------------------------------------------


def judged(found: Found) -> list[Row]:
    """What users should find of steps that are large enough, and what it became."""
    best = dict.fromkeys(WORDS, ONE_MODEL[-1]) | {TURNED: IN_CLUSTERS[2]}
    return [
        *(_sooner(found, scenario, best[scenario], ROUNDS) for scenario in (IID, MIXED, TURNED)),
        *(_sooner(found, scenario, best[scenario], CLOSED) for scenario in (IID, MIXED, TURNED)),
        *(_kept(found, scenario, best[scenario]) for scenario in (MIXED, TURNED)),
    ]


def _sooner(found: Found, scenario: str, ours: Way, other: Way) -> Row:
    mine, theirs = (found["time", scenario, way.name] for way in (ours, other))
    gain = paired(theirs, mine) if np.isfinite([*mine, *theirs]).all() else None
    return Row(
        f"{WORDS[scenario]}: time to {TARGET}, {ours.name}",
        _time(mine),
        f"{other.name}: {_time(theirs)}",
        "" if gain is None else f"{-gain.mean:+.1f} ± {gain.margin:.1f}",
        "sooner",
        gain is not None and gain.is_above(0),
    )


def _kept(found: Found, scenario: str, ours: Way) -> Row:
    mine, theirs = (found["slow", scenario, way.name] for way in (ours, ROUNDS))
    loss = paired(mine, theirs)
    return Row(
        f"{WORDS[scenario]}: slow clients' accuracy, {ours.name}",
        mean_of(mine),
        f"{ROUNDS.name}: {mean_of(theirs)}",
        loss.spread,
        "above -0.05",
        loss.is_above(-0.05),
    )


def _time(values: Sequence[float]) -> str:
    """Units of time over seeds, or how many seeds came to the accuracy at all."""
    reached = [value for value in values if np.isfinite(value)]
    if len(reached) < len(values):
        return f"{len(reached)} of {len(values)} seeds"
    mean, margin = interval(values)
    return f"{mean:.1f}" if not np.isfinite(margin) else f"{mean:.1f} ± {margin:.1f}"


def tables(found: Found) -> list[Table]:
    """One for each scenario."""
    return [_table(found, scenario) for scenario in WORDS]


def _table(found: Found, scenario: str) -> Table:
    def row(way: Way) -> list[str]:
        values = {name: found[name, scenario, way.name] for name in COLUMNS}
        time, *others, share = COLUMNS
        means = [mean_of(values[name]) for name in others]
        return [way.name, _time(values[time]), *means, f"{np.mean(values[share]):.3f}"]

    return Table(
        f"Clients: {WORDS[scenario]}",
        ["way", *COLUMNS.values()],
        [row(way) for way in ways_of(scenario)],
    )


# --- clients -------------------------------------------------------------------------------------


def clients_of(scenario: str, seed: int) -> Clients:
    """The clients of a scenario; with images turned, the slow ones are in one group."""
    setting = Setting("digits", "mlp", scenario, CLIENTS, seed)
    federation = Federation.planted(setting)
    groups, slow = np.zeros(CLIENTS, np.int64), np.arange(CLIENTS) < SLOW
    if scenario == TURNED:
        groups = _clusters(federation)
        slow = np.zeros(CLIENTS, bool)
        slow[np.flatnonzero(federation.groups == seed % GROUPS)[:SLOW]] = True
    return Clients(federation, groups, slow)


def _clusters(federation: Federation) -> Integers:
    """Four clusters by supports at the common weights, ``(N,)``."""
    supports = [select_support(each, fraction=0.1) for each in federation.importances]
    found, _ = Division(n_clusters=GROUPS).groups(matrix([PackedSupport.pack(s) for s in supports]))
    return np.asarray(found, np.int64)
