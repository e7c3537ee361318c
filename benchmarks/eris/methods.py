"""Measure what is learned by averages in shards and by what they are compared with.

Twenty clients, labels split by Dirichlet(.3), a network with five local steps, 100 rounds; clients
that end with models of their own count by their mean. Noise is given as sigma for a clipping norm
of 1; for an epsilon of 8 after 100 rounds it would have to be 6.4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch

from benchmarks.eris.baselines import (
    QDPSGD,
    Ako,
    Alone,
    Mixing,
    Shatter,
    noised,
    pruned,
    trained_alone,
)
from benchmarks.eris.convergence import (
    ALL,
    RATE,
    STEPS,
    Local,
    Way,
    federation,
    local_steps,
    train,
)
from benchmarks.eris.data import Dataset, digits, given
from benchmarks.report import Findings, Row, Table

LIBRARIES = ("numpy", "torch", "scikit-learn")

Method = Callable[[int], float]
"""The accuracy of one split."""


def run(quick: bool) -> Findings:
    """Every method on the digits, and on other data where there are any."""
    torch.set_num_threads(1)  # as everywhere in these benchmarks
    rows, tables = [], []
    for data in [digits(), *given()]:
        found = {name: _mean(method, quick) for name, method in _methods(data, quick)}
        (fedavg, _), (ours, _) = found["FedAvg"], found["ERIS"]
        judged = data.name == "digits" and not quick
        rows.append(
            Row(
                f"accuracy on {data.name}",
                f"{ours:.3f}",
                f"FedAvg: {fedavg:.3f}",
                f"{ours - fedavg:+.3f}",
                "≥ −0.01" if judged else "",
                ours >= fedavg - 0.01 if judged else None,
            )
        )
        tables.append(
            Table(
                f"Accuracy on {data.name}, mean and deviation of three splits",
                ["method", "accuracy", "±"],
                [[name, f"{mean:.3f}", f"{spread:.3f}"] for name, (mean, spread) in found.items()],
            )
        )
    return Findings(rows, tables)


def _mean(method: Method, quick: bool) -> tuple[float, float]:
    found = [method(seed) for seed in range(1 if quick else 3)]
    return float(np.mean(found)), float(np.std(found))


def _methods(data: Dataset, quick: bool) -> Iterator[tuple[str, Method]]:
    rounds = 1 if quick else 100

    def averaged(
        way: Way, change: Callable[[Local, int], Local] | None = None, server_rate: float = 1.0,
        shards: int = 10,
    ) -> Method:  # fmt: skip
        def method(seed: int) -> float:
            clients, flat = federation(data, seed)
            local = local_steps(flat, clients)
            if change is not None:
                local = change(local, seed)
            weights = train(
                flat, local, way, rounds, server_rate=server_rate, shards=shards, seed=seed
            )
            return flat.accuracy(weights, clients)

        return method

    def apart(mixing: Callable[[], Mixing]) -> Method:
        def method(seed: int) -> float:
            clients, flat = federation(data, seed)
            return trained_alone(
                flat, clients, mixing(), rounds=rounds, rate=RATE, steps=STEPS, seed=seed
            )

        return method

    def fedavg(seed: int) -> float:
        clients, flat = federation(data, seed)
        local, weights = local_steps(flat, clients), flat.start
        for _ in range(rounds):
            weights = weights + local(weights).mean(0)
        return flat.accuracy(weights, clients)

    yield "FedAvg", fedavg
    yield "ERIS", averaged(ALL)
    yield "ERIS, c = 16, one mask", averaged(Way(16))
    yield "ERIS, c = 16, own masks with shifts", averaged(Way(16, "own"), server_rate=0.5)
    for sigma in (0.01, 0.1, 0.3, 1.0):
        yield f"LDP, sigma = {sigma:g}", averaged(ALL, _noise(sigma))
    for sigma in (0.01, 0.1):
        name = f"SoteriaFL, c = 20, sigma = {sigma:g}"
        yield name, averaged(Way(20, "own"), _noise(sigma), server_rate=0.5, shards=1)
    for share in (0.01, 0.05, 0.1):
        yield f"PriPrune, {share:.0%}", averaged(ALL, _pruning(share))
    yield "Shatter, 16 chunks, 4 neighbours", apart(Shatter)
    yield "Ako, 5 parts", apart(Ako)
    yield "Q-DPSGD-1, 7 levels, no noise", apart(QDPSGD)
    yield "each client alone", apart(Alone)


def _noise(sigma: float) -> Callable[[Local, int], Local]:
    return lambda local, seed: noised(local, 1.0, sigma, seed)


def _pruning(share: float) -> Callable[[Local, int], Local]:
    return lambda local, _: pruned(local, share)
