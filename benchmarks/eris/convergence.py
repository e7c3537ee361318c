"""Measure convergence by what is sent of each update, and what lost aggregators cost.

Gradient norms are of logistic regression with full local gradients, at the best of some rates.
Accuracies are of a network with five local steps a round. Labels are split by Dirichlet(.3).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import torch
from torch import Tensor

from benchmarks.eris.data import Clients, Dataset, digits, given, split
from benchmarks.eris.networks import Flat, logistic, mlp
from benchmarks.eris.rounds import Rounds, plain_roster
from benchmarks.report import Findings, Row, Table
from modelkin.federation.shards.plan import Plan
from modelkin.federation.shards.roster import Round

LIBRARIES = ("numpy", "torch", "scikit-learn")

N, ALPHA, DECAY = 20, 0.3, 1e-3
STEPS, RATE = 5, 0.3
SHARDS = 10

Local = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Way:
    """A way to send an update: one value in c, by whose masks, and of which differences.

    Shifts move as the protocol's do, by receipts and by the weight of who took part, or as in the
    literature without one of these.
    """

    one_in: int
    masks: str = "one"
    shift: bool = True
    receipts: bool = True
    weighed: bool = True

    @property
    def name(self) -> str:
        if self.one_in == 1:
            return "all values"
        if self.masks == "one":
            return "one mask"
        return "own masks, shifts" if self.shift else "own masks, plain"

    def rounds(self, size: int, shards: int) -> Rounds:
        plan = Plan(
            num_parameters=size, shards=shards, conceal=False, one_in=self.one_in, masks=self.masks
        )
        return Rounds(plain_roster(N, plan), shift=self.shift, receipts=self.receipts)


ALL: Final = Way(1)
WAYS: Final = [
    Way(c, masks, shift)
    for c in (4, 16, 64)
    for masks, shift in (("own", False), ("one", True), ("own", True))
]

NORM_RATES: Final = {1: (1.0,), 4: (1.0, 0.5), 16: (0.5, 0.25), 64: (0.125,)}
"""Learning rates of the gradient norms by c: the best one counts."""

SERVER_RATES: Final = {1: (1.0,), 4: (1.0,), 16: (1.0, 0.5), 64: (0.5, 0.2)}
"""Server rates of the accuracies by c: the best one counts."""

LOST: Final = (0.0, 0.3, 0.5, 0.7, 0.9)


def train(
    flat: Flat,
    local: Local,
    way: Way,
    rounds: int,
    *,
    server_rate: float = 1.0,
    shards: int = SHARDS,
    lost: float = 0.0,
    present: float = 1.0,
    seed: int = 0,
    at: dict[int, Tensor] | None = None,
) -> Tensor:
    """The weights after some rounds.

    Args:
        flat: the network.
        local: all clients' updates of given weights, shape ``(n, M)``.
        way: what is sent.
        rounds: how many.
        server_rate: by which the average update is multiplied.
        shards: of each update; without losses their number changes little.
        lost: the probability that an aggregator's result of a round is lost.
        present: the probability that a client takes part in a round.
        seed: of losses and absences.
        at: filled with the weights after the rounds that are its keys.
    """
    shared, rng = way.rounds(flat.size, shards), np.random.default_rng(seed)
    weights = flat.start
    for number in range(1, rounds + 1):
        gone = np.flatnonzero(rng.random(shards) < lost).tolist()
        here = np.flatnonzero(rng.random(N) < present).tolist()
        if len(here) < 2:
            continue
        total = float(N) if way.weighed else None
        current = Round(number, dict.fromkeys(here, 1.0), roster_total=total)
        update = shared.mean(local(weights).numpy(), current, gone)
        weights = weights + server_rate * torch.from_numpy(update)
        if at is not None and number in at:
            at[number] = weights
    return weights


def run(quick: bool) -> Findings:
    """Measure gradient norms, then accuracies, then losses."""
    torch.set_num_threads(1)  # as everywhere in these benchmarks
    ways, seeds = [ALL, *(WAYS[3:6] if quick else WAYS)], range(1 if quick else 2)
    norms = gradient_norms(ways, 1 if quick else 1000, seeds)
    rows, tables = _judged_norms(norms, judged=not quick), [_norm_table(norms)]
    for data in [digits(), *given()]:
        found = accuracies(data, ways, quick)
        rows.append(_judged_accuracy(data.name, found, judged=not quick))
        tables.append(_accuracy_table(data.name, found))
    tables.append(_absence_table(3 if quick else 1000, seeds))
    losses = {way: lost_aggregators(way, quick) for way in _LOSSES}
    rows.append(_judged_loss(losses[ALL], judged=not quick))
    return Findings(rows, [*tables, _loss_table(losses)])


# --- gradient norms ------------------------------------------------------------------------------


def gradient_norms(ways: list[Way], rounds: int, seeds: range) -> dict[Way, float]:
    """The norm of the mean gradient at the end, mean over the splits, at the best rate."""
    return {
        way: min(
            float(np.mean([_norm(way, rate, rounds, seed) for seed in seeds]))
            for rate in NORM_RATES[way.one_in]
        )
        for way in ways
    }


def _norm(way: Way, rate: float, rounds: int, seed: int, present: float = 1.0) -> float:
    data = split(digits(), N, ALPHA, seed)
    flat = Flat(logistic(), DECAY)

    def gradients(weights: Tensor) -> Tensor:
        return flat.gradients(weights.expand(N, -1), data.inputs, data.labels)

    weights = train(
        flat, lambda weights: -rate * gradients(weights), way, rounds,
        shards=1, present=present, seed=seed,
    )  # fmt: skip
    return float(gradients(weights).mean(0).norm())


def _judged_norms(norms: dict[Way, float], *, judged: bool) -> list[Row]:
    rows = []
    for c in (4, 16):
        plain = norms.get(Way(c, "own", False))
        for way in (Way(c), Way(c, "own")):
            if plain is None or way not in norms:
                continue
            share = norms[way] / plain
            rows.append(
                Row(
                    f"gradient norm, c = {c}: {way.name}",
                    f"{norms[way]:.4f}",
                    f"own masks, plain: {plain:.4f}",
                    f"{share:.2f}×",
                    "≤ 0.5×" if judged else "",
                    share <= 0.5 if judged else None,
                )
            )
    return rows


def _norm_table(norms: dict[Way, float]) -> Table:
    return Table(
        f"Gradient norm of logistic regression on digits, {N} clients, by what is sent",
        ["c", "what is sent", "norm"],
        [[str(way.one_in), way.name, f"{norm:.4f}"] for way, norm in norms.items()],
    )


def _absence_table(rounds: int, seeds: range) -> Table:
    """Gradient norms with a third of the clients in each round."""
    own = Way(16, "own")
    ways = {
        "all values": ALL,
        "c = 16, own masks, shifts that move by the weight of who came": own,
        "the same, by the mean of who came": replace(own, weighed=False),
    }
    rows = []
    for name, way in ways.items():
        norms = [_norm(way, 0.25, rounds, seed, present=1 / 3) for seed in seeds]
        rows.append([name, f"{np.mean(norms):.4f}"])
    return Table(
        f"Gradient norm of logistic regression with a third of {N} clients in each round",
        ["what is sent", "norm"],
        rows,
    )


# --- accuracies ----------------------------------------------------------------------------------


def accuracies(data: Dataset, ways: list[Way], quick: bool) -> dict[Way, tuple[float, float]]:
    """Accuracy after a quarter of the rounds and after all, mean over the splits."""
    seeds, rounds = (range(1), 1) if quick else (range(3), 100)
    return {
        way: max(
            (_accuracy(data, way, rate, rounds, seeds) for rate in SERVER_RATES[way.one_in]),
            key=lambda pair: pair[1],
        )
        for way in ways
    }


def _accuracy(
    data: Dataset, way: Way, rate: float, rounds: int, seeds: range
) -> tuple[float, float]:
    runs = []
    for seed in seeds:
        clients, flat = federation(data, seed)
        at = {-(-rounds // 4): flat.start, rounds: flat.start}
        train(flat, local_steps(flat, clients), way, rounds, server_rate=rate, at=at)
        runs.append([flat.accuracy(weights, clients) for weights in at.values()])
    found = np.mean(runs, axis=0)
    return float(found[0]), float(found[-1])


def local_steps(flat: Flat, clients: Clients) -> Local:
    """Five steps of each client, as updates."""
    return lambda weights: flat.stepped(weights, clients, RATE, STEPS) - weights


def federation(data: Dataset, seed: int) -> tuple[Clients, Flat]:
    inputs = data.inputs[0].numel()
    return split(data, N, ALPHA, seed), Flat(mlp(inputs, data.classes, seed=seed))


def _judged_accuracy(name: str, found: dict[Way, tuple[float, float]], *, judged: bool) -> Row:
    whole, thinned = found[ALL][1], found[Way(16)][1]
    judge = judged and name == "digits"
    return Row(
        f"accuracy on {name}, one mask, c = 16",
        f"{thinned:.3f}",
        f"FedAvg: {whole:.3f}",
        f"{thinned - whole:+.3f}",
        "≥ −0.01" if judge else "",
        thinned >= whole - 0.01 if judge else None,
    )


def _accuracy_table(name: str, found: dict[Way, tuple[float, float]]) -> Table:
    return Table(
        f"Accuracy on {name} of a network with {STEPS} local steps, {N} clients",
        ["c", "what is sent", "after 25 rounds", "after 100 rounds"],
        [
            [str(way.one_in), way.name, f"{early:.3f}", f"{late:.3f}"]
            for way, (early, late) in found.items()
        ],
    )


# --- lost aggregators ----------------------------------------------------------------------------

_LOSSES: Final = [ALL, Way(16, "own"), replace(Way(16, "own"), receipts=False)]


def lost_aggregators(way: Way, quick: bool) -> list[float]:
    """Accuracy by how often an aggregator's result of a round is lost."""
    seeds, rounds = (range(1), 1) if quick else (range(3), 100)
    server_rate = 1.0 if way.one_in == 1 else 0.2
    found: list[float] = []
    for lost in LOST:
        runs: list[float] = []
        for seed in seeds:
            clients, flat = federation(digits(), seed)
            weights = train(
                flat, local_steps(flat, clients), way, rounds,
                server_rate=server_rate, lost=lost, seed=seed,
            )  # fmt: skip
            runs.append(flat.accuracy(weights, clients))
        found.append(float(np.mean(runs)))
    return found


def _judged_loss(found: list[float], *, judged: bool) -> Row:
    whole, half = found[0], found[LOST.index(0.5)]
    return Row(
        f"accuracy with half of {SHARDS} aggregators lost in each round",
        f"{half:.3f}",
        f"no loss: {whole:.3f}",
        f"{half - whole:+.3f}",
        "≥ −0.02" if judged else "",
        half >= whole - 0.02 if judged else None,
    )


def _loss_table(losses: dict[Way, list[float]]) -> Table:
    names = {
        ALL: "all values",
        _LOSSES[1]: "c = 16, own masks, shifts that wait for receipts",
        _LOSSES[2]: "the same without receipts",
    }
    return Table(
        "Accuracy on digits after 100 rounds, by how often an aggregator's result is lost",
        ["what is sent", *(f"{lost:.0%}" for lost in LOST)],
        [[names[way], *(f"{each:.3f}" for each in found)] for way, found in losses.items()],
    )
