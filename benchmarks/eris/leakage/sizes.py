"""Measure the same by how many samples a client has, with clients alike and one step a round."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import torch

from benchmarks.eris.data import digits, given
from benchmarks.eris.leakage.leaks import Leak, Setting, area, front, leaks
from benchmarks.eris.leakage.trainings import with_any
from benchmarks.eris.membership import CANARIES
from benchmarks.report import Findings, Table

LIBRARIES = ("numpy", "torch", "scikit-learn")

CLIENTS, ROUNDS = 10, 20

SIZES: Final = {4: 8, 8: 4, 16: 3, 32: 3, 64: 3, 128: 3}
"""Samples of a client, and the seeds that give 480 canaries or more."""

CHOSEN: Final = with_any(
    "FedAvg",
    "ERIS, A = 10, c = 16, one mask",
    "LDP, sigma = 0.1",
    "SoteriaFL, c = 20, sigma = 0.03",
    "PriPrune, 1%",
    "Shatter, 16 chunks, 4 neighbours",
)


def run(quick: bool) -> Findings:
    """Train by a strength of most methods, for each number of samples."""
    torch.set_num_threads(1)  # as everywhere in these benchmarks
    tables = []
    for data in [digits(), *given()]:
        columns = {
            samples: [
                leak
                for each in CHOSEN
                for leak in leaks(data, each, 1 if quick else seeds, _setting(samples, quick))
            ]
            for samples, seeds in ({4: 1} if quick else SIZES).items()
        }
        tables.append(_by_size(data.name, columns))
    return Findings([], tables)


def _setting(samples: int, quick: bool) -> Setting:
    canaries = min(2 * (samples - 1), CANARIES)
    return Setting(CLIENTS, samples - canaries // 2, canaries, 1 if quick else ROUNDS)


def _by_size(name: str, columns: dict[int, list[Leak]]) -> Table:
    fronts = {samples: front(found, area) for samples, found in columns.items()}
    rows = []
    for same in zip(*columns.values(), strict=True):
        each = np.array([(leak.accuracy, leak.area, leak.alone) for leak in same])
        on = [str(samples) for samples, best in fronts.items() if same[0].name in best]
        rows.append([same[0].name, *map(_cell, [*each, each.mean(axis=0)]), ", ".join(on)])
    return Table(
        f"Accuracy on {name} after {ROUNDS} rounds of {CLIENTS} clients / AUC with candidates of "
        f"all known / of one known, by samples a client; of which sizes it is on the front, with "
        f"candidates of all known",
        ["method", *map(str, columns), "mean", "on the front"],
        rows,
    )


def _cell(figures: Sequence[float]) -> str:
    return " / ".join(f"{each:.2f}" for each in figures)
