"""Measure the same by how many samples a client has, with clients alike and one step a round."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import torch

from benchmarks.eris.data import digits, given
from benchmarks.eris.leakage.leaks import Area, Leak, Setting, alone, area, front, leaks
from benchmarks.eris.leakage.trainings import with_any
from benchmarks.eris.membership import CANARIES
from benchmarks.report import Findings, Table

LIBRARIES = ("numpy", "torch", "scikit-learn")

CLIENTS, ROUNDS = 10, 20

SIZES: Final = {4: 5, 8: 2, 16: 2, 32: 2, 64: 2, 128: 2}
"""Samples of a client, and the seeds that give 280 canaries or more."""

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
    tables: list[Table] = []
    for data in [digits(), *given()]:
        columns = {
            samples: [
                leak
                for each in CHOSEN
                for leak in leaks(data, each, 1 if quick else seeds, _setting(samples, quick))
            ]
            for samples, seeds in ({4: 1} if quick else SIZES).items()
        }
        tables += _by_size(data.name, columns)
    return Findings([], tables)


def _setting(samples: int, quick: bool) -> Setting:
    canaries = min(2 * (samples - 1), CANARIES)
    return Setting(CLIENTS, samples - canaries // 2, canaries, 1 if quick else ROUNDS)


def _by_size(name: str, columns: Mapping[int, Sequence[Leak]]) -> Iterator[Table]:
    fronts = {samples: front(found, area) for samples, found in columns.items()}
    where = f"{name} after {ROUNDS} rounds of {CLIENTS} clients, by samples a client"
    titles: dict[str, tuple[str, Area]] = {
        "": (
            f"Accuracy on {where}; at which sizes it is on the front, with candidates of all known",
            lambda leak: leak.accuracy,
        ),
        "AUC, ": (f"AUC of the best attack on {where}, with candidates of all known", area),
        "one, ": (f"AUC of the best attack on {where}, with candidates of one known", alone),
    }
    for before, (title, figure) in titles.items():
        heads = [f"{before}{each}" for each in (*columns, "mean")]
        rows = []
        for same in zip(*columns.values(), strict=True):
            each = [figure(leak) for leak in same]
            cells = [same[0].name, *(f"{value:.2f}" for value in (*each, float(np.mean(each))))]
            on = [str(samples) for samples, best in fronts.items() if same[0].name in best]
            rows.append(cells if before else [*cells, ", ".join(on)])
        yield Table(title, ["method", *heads, *([] if before else ["on the front"])], rows)
