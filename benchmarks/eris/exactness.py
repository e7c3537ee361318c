"""Measure how far averages in shards are from the average, and from FedAvg in float32.

The rounds are the protocol's own: every cell is sealed, opened and combined by its aggregator.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from benchmarks.eris.data import digits, split
from benchmarks.eris.networks import Flat, mlp
from benchmarks.report import Findings, Row, Table
from modelkin.federation.shards.fixed_point import least_power
from modelkin.federation.sharing import (
    Aggregator,
    Member,
    Party,
    Plan,
    Roster,
    Round,
    assemble,
    new_key,
    public_key,
)

LIBRARIES = ("numpy", "torch", "cryptography")

N, ALPHA, RATE, STEPS = 20, 0.3, 0.3, 5
STEP, TRAINED = 1e-6, 1e-6
"""The largest differences from FedAvg: of a step, and of weights after a training."""

Floats = npt.NDArray[np.float32]


class Parties:
    """All parties of a roster in one process, over which rounds run as a carrier runs them.

    Args:
        members: how many; each may hold shards.
        plan: of the rounds; with more shards than members, neutral parties hold the others.
    """

    def __init__(self, members: int, plan: Plan) -> None:
        keys = [new_key() for _ in range(max(members, plan.shards))]
        parties = (
            Party(f"m{at:04d}", public_key(key), neutral=at >= members)
            for at, key in enumerate(keys)
        )
        self.roster = Roster(plan, tuple(parties))
        self._members = [Member(self.roster, at, keys[at]) for at in range(members)]
        self._aggregators = {at: Aggregator(self.roster, at, keys[at]) for at in self.roster.seats}

    def mean(self, updates: Floats, current: Round, lost: tuple[int, ...] = ()) -> Floats:
        """The average update of shape ``(n, M)``, zero where a shard's result is lost."""
        cells: dict[tuple[int, int], dict[int, bytes]] = {}
        for place in current.taking_part:
            for cell in self._members[place].cells(updates[place], current):
                cells.setdefault((cell.shard, cell.piece), {})[place] = cell.data
        results: dict[int, dict[int, Floats]] = {}
        for (shard, piece), sent in cells.items():
            holder = self._aggregators[self.roster.holders(shard)[0]]
            values = holder.combine(shard, piece, sent, current).values
            assert values is not None, "every cell is sound"
            if shard not in lost:
                results.setdefault(shard, {})[piece] = values
        for member in self._members:
            member.settle(current.number, results)
        for aggregator in self._aggregators.values():
            aggregator.settle(current.number, results)
        return assemble(self.roster, current, results)


def run(quick: bool) -> Findings:
    """One step by numbers of shards, plain and concealed, then a whole training."""
    torch.set_num_threads(1)  # as everywhere in these benchmarks
    data, flat = split(digits(), N, ALPHA, 1), Flat(mlp())
    weights = {place: 20.0 + 2 * place for place in range(N)}

    def local(start: Tensor) -> Floats:
        found: Floats = (flat.stepped(start, data, RATE, STEPS) - start).numpy()
        return found

    updates = local(flat.start)
    counts = (1, 2, 7) if quick else (1, 2, 7, 20, 50, 1000)
    rows, facts = _one_step(updates, weights, counts)
    rows.append(_training(flat, local, weights, 1 if quick else 50))
    what = f"One step of {N} members with M = {flat.size:,}: largest differences"
    columns = [
        "shards",
        "from float64",
        "from FedAvg in float32",
        "concealed, from float64",
        "time",
    ]
    return Findings(rows, [Table(what, columns, facts)])


def _one_step(
    updates: Floats, weights: dict[int, float], counts: tuple[int, ...]
) -> tuple[list[Row], list[list[str]]]:
    total = sum(weights.values())
    exact = sum(
        weights[at] / total * update.astype(np.float64) for at, update in enumerate(updates)
    )
    float32 = fedavg32(updates, weights)
    facts, plain, concealed = [], [], []
    for shards in counts:
        begin = time.perf_counter()
        plain.append(_average(updates, weights, shards, conceal=False))
        seconds = time.perf_counter() - begin
        concealed.append(_average(updates, weights, shards, conceal=True))
        facts.append(
            [
                str(shards),
                _largest(plain[-1] - exact),
                _largest(plain[-1] - float32),
                _largest(concealed[-1] - exact),
                f"{seconds:.2f} s",
            ]
        )
    equal = all(np.array_equal(each, plain[0]) for each in plain)
    hidden = all(np.array_equal(each, concealed[0]) for each in concealed)
    worst = max(float(np.abs(each - float32).max()) for each in plain)
    unit = least_power(float(np.abs(updates).max())) * 2.0**-30
    hidden_error = max(float(np.abs(each - exact).max()) for each in concealed)
    names = ", ".join(map(str, counts))
    return [
        Row(f"bits of the average, A = {names}", "equal" if equal else "different", "A = 1", "",
            "bit-identical", equal),
        Row(f"bits of concealed sums, A = {names}", "equal" if hidden else "different", "A = 1",
            "", "bit-identical", hidden),
        Row("difference from FedAvg in float32, one step", f"{worst:.1e}", "FedAvg", "",
            f"≤ {STEP:g}", worst <= STEP),
        Row("error of concealed sums", f"{hidden_error:.1e}", "float64", "",
            f"≤ n 2^-F = {N * unit:.1e}", hidden_error <= N * unit),
    ], facts  # fmt: skip


def _average(updates: Floats, weights: dict[int, float], shards: int, *, conceal: bool) -> Floats:
    plan = Plan(num_parameters=updates.shape[1], shards=shards, conceal=conceal)
    peak = least_power(float(np.abs(updates).max())) if conceal else None
    return Parties(len(updates), plan).mean(updates, Round(1, weights, peak=peak))


def fedavg32(updates: Floats, weights: dict[int, float]) -> Floats:
    """The mean as training code has it: float32, members in order."""
    total, found = sum(weights.values()), torch.zeros(updates.shape[1])
    for at, update in enumerate(updates):
        found += torch.from_numpy(update) * (weights[at] / total)
    averaged: Floats = found.numpy()
    return averaged


def _training(
    flat: Flat, local: Callable[[Tensor], Floats], weights: dict[int, float], rounds: int
) -> Row:
    plan = Plan(num_parameters=flat.size, shards=5, conceal=False)
    parties, ours, theirs = Parties(N, plan), flat.start, flat.start
    for number in range(1, rounds + 1):
        update = parties.mean(local(ours), Round(number, weights))
        ours = ours + torch.from_numpy(update)
        theirs = theirs + torch.from_numpy(fedavg32(local(theirs), weights))
    worst = float((ours - theirs).abs().max())
    return Row(
        f"difference of weights from FedAvg in float32, {rounds} rounds, A = 5",
        f"{worst:.1e}",
        "FedAvg",
        "",
        f"≤ {TRAINED:g}",
        worst <= TRAINED,
    )


def _largest(difference: npt.NDArray[np.floating]) -> str:
    return f"{float(np.abs(difference).max()):.1e}"
