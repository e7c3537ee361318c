"""Measure the same with unlike clients, and with several steps a round, each alone.

Labels are dealt by Dirichlet(.3), canaries likewise. Several steps make an update a biased estimate
of the gradient that receivers hold it against.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import torch

from benchmarks.eris.convergence import ALPHA, STEPS
from benchmarks.eris.data import digits, given
from benchmarks.eris.leakage.leaks import ALIKE, Leak, area, front, leaks, points
from benchmarks.eris.leakage.trainings import with_any
from benchmarks.plots import draw_panels
from benchmarks.report import Findings, Table

LIBRARIES = ("numpy", "torch", "scikit-learn")

PLOT = Path(__file__).parents[3] / "docs" / "benchmarks" / "leakage-unlike.svg"

SEEDS: Final = 2

SETTINGS: Final = {
    "unlike": replace(ALIKE, alpha=ALPHA),
    f"{STEPS} steps": replace(ALIKE, steps=STEPS),
}

WORDS: Final = {
    "unlike": f"unlike, with labels by Dirichlet({ALPHA:g})",
    f"{STEPS} steps": f"alike, with {STEPS} steps a round",
}

CHOSEN: Final = with_any(
    "FedAvg",
    "ERIS, A = 20, c = 16, one mask",
    "LDP, sigma = 0.1",
    "ERIS, A = 20, c = 16, one mask, sigma = 0.03",
    "SoteriaFL, c = 20, sigma = 0.03",
    "PriPrune, 1%",
    "Shatter, 16 chunks, 4 neighbours",
    "Ako, 5 parts",
    "Q-DPSGD-1, 7 levels, no noise",
)


def run(quick: bool) -> Findings:
    """Train by one strength of the methods that are compared with in these settings."""
    torch.set_num_threads(1)  # as everywhere in these benchmarks
    tables: list[Table] = []
    for data in [digits(), *given()]:
        found = {
            words: [
                leak
                for each in CHOSEN
                for leak in leaks(
                    data, each, 1 if quick else SEEDS,
                    replace(setting, rounds=1) if quick else setting,
                )
            ]
            for words, setting in SETTINGS.items()
        }  # fmt: skip
        tables += [_by_method(data.name, words, each) for words, each in found.items()]
        if data.name == "digits" and not quick:
            panels = {
                f"{words}, candidates of all clients known": points(each, area)
                for words, each in found.items()
            }
            draw_panels(PLOT, panels, "accuracy", "AUC of the best attack")
    return Findings([], tables)


def _by_method(name: str, words: str, found: Sequence[Leak]) -> Table:
    best = front(found, area)
    return Table(
        f"Clients {WORDS[words]}: accuracy on {name} after {ALIKE.rounds} rounds, and AUC of the "
        f"best attack, with candidates of all known, or of one; who is on the front, with "
        f"candidates of all known",
        ["method", f"accuracy, {words}", "±", f"AUC, {words}", f"one, {words}", "front"],
        [
            [
                leak.name, f"{leak.accuracy:.3f}", f"{leak.spread:.3f}", f"{leak.area:.3f}",
                f"{leak.alone:.3f}", "on it" if leak.name in best else "",
            ]
            for leak in found
        ],
    )  # fmt: skip
