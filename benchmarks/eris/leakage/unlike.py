"""Measure the same with unlike clients, and with several steps a round, each alone.

Labels are dealt by Dirichlet(.3), canaries likewise. Several steps make an update a biased estimate
of the gradient that receivers hold it against.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import torch

from benchmarks.eris.convergence import ALPHA, STEPS
from benchmarks.eris.data import digits, given
from benchmarks.eris.leakage.leaks import ALIKE, Leak, alone, area, front, leaks, points
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
    tables = []
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
        tables.append(_by_setting(data.name, found))
        if data.name == "digits" and not quick:
            panels = {
                f"{words}, candidates of all clients known": points(each, area)
                for words, each in found.items()
            }
            draw_panels(PLOT, panels, "accuracy", "AUC of the best attack")
    return Findings([], tables)


def _by_setting(name: str, found: Mapping[str, Sequence[Leak]]) -> Table:
    fronts = {words: front(each, area) for words, each in found.items()}
    rows = []
    for same in zip(*found.values(), strict=True):
        on = [words for words, best in fronts.items() if same[0].name in best]
        cells = [text for leak in same for text in (cell(leak), f"{leak.spread:.3f}")]
        rows.append([same[0].name, *cells, " and ".join(on)])
    return Table(
        f"Accuracy on {name} after {ALIKE.rounds} rounds / AUC of the best attack with candidates "
        f"of all known / of one known, with labels by Dirichlet({ALPHA:g}), and with {STEPS} steps "
        f"of clients alike; deviations of the accuracy; who is on the front of which, with "
        f"candidates of all known",
        ["method", *(head for words in found for head in (words, "±")), "on the front"],
        rows,
    )


def cell(leak: Leak) -> str:
    """The accuracy, and the two areas."""
    return " / ".join(f"{value:.3f}" for value in (leak.accuracy, area(leak), alone(leak)))
