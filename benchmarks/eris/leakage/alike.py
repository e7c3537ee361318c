"""Measure what each method learns against what it shows, with clients alike and one step a round.

This is the independent and identically distributed setting with an unbiased estimator; the other
settings are subjects of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import torch

from benchmarks.eris.data import digits, given
from benchmarks.eris.leakage.leaks import ALIKE, Leak, Setting, alone, area, front, leaks, points
from benchmarks.eris.leakage.trainings import GLOBAL, TRAININGS
from benchmarks.plots import draw_panels
from benchmarks.report import Findings, Row, Table

LIBRARIES = ("numpy", "torch", "scikit-learn")

PLOT = Path(__file__).parents[3] / "docs" / "benchmarks" / "leakage.svg"

SEEDS: Final = 3

MOST: Final = 0.7
"""The AUC at which accuracies are compared."""

QUICK: Final = Setting(rounds=1)


def run(quick: bool) -> Findings:
    """Train by every method."""
    torch.set_num_threads(1)  # as everywhere in these benchmarks
    rows, tables = [], []
    for data in [digits(), *given()]:
        setting, seeds = (QUICK, 1) if quick else (ALIKE, SEEDS)
        found = [leak for each in TRAININGS for leak in leaks(data, each, seeds, setting)]
        judged = data.name == "digits" and not quick
        rows += _judged(data.name, found, judged=judged)
        tables.append(_by_method(data.name, found))
        if judged:
            draw_panels(
                PLOT,
                {
                    "candidates of all clients known": points(found, area),
                    "candidates of one client known": points(found, alone),
                },
                "accuracy",
                "AUC of the best attack",
            )
    return Findings(rows, tables)


def _judged(name: str, found: Sequence[Leak], *, judged: bool) -> list[Row]:
    of = {leak.name: leak for leak in found}
    fedavg, tenth, few = of["FedAvg"], of["ERIS, A = 10"], of["ERIS, A = 50"]
    sums, models = of["ERIS, sums"], of[GLOBAL]

    def row(figure: str, ours: float, beside: str, theirs: float, target: str) -> Row:
        difference, (sign, bound) = ours - theirs, target.split()
        met = difference >= float(bound) if sign == "≥" else difference <= float(bound)
        return Row(
            f"{name}: {figure}", f"{ours:.3f}", f"{beside}: {theirs:.3f}", f"{difference:+.3f}",
            target if judged else "", met if judged else None,
        )  # fmt: skip

    one, everyone = "AUC, one client's candidates known", "AUC, all candidates known"
    return [
        row(f"{one}, A = 10", tenth.alone, "FedAvg", fedavg.alone, "≥ -0.05"),
        row(f"{one}, sums", sums.alone, "A = 50", few.alone, "≤ -0.05"),
        row(f"{everyone}, sums", sums.area, "global models", models.area, "≥ +0.05"),
        *(
            row(
                f"most accuracy with an AUC up to {MOST}, {each}",
                _most_accurate(found, f"ERIS, {each}"), "LDP", _most_accurate(found, "LDP"),
                "≥ +0.05",
            )
            for each in ("one of 50 shards", "sums")
        ),
    ]  # fmt: skip


def _most_accurate(found: Sequence[Leak], family: str) -> float:
    fit = [x.accuracy for x in found if x.family == family and x.area <= MOST]
    return max(fit, default=0.0)


def _by_method(name: str, found: Sequence[Leak]) -> Table:
    fronts = {"all": front(found, area), "one": front(found, alone)}
    rows = []
    for leak in found:
        on = [known for known, best in fronts.items() if leak.name in best]
        rows.append(
            [
                leak.name, f"{leak.accuracy:.3f}", f"{leak.spread:.3f}", f"{leak.area:.3f}",
                leak.attack, f"{leak.alone:.3f}", " and ".join(on),
            ]
        )  # fmt: skip
    return Table(
        f"Clients alike: accuracy on {name} after {ALIKE.rounds} rounds, and AUC of the best "
        f"attack on what a receiver has, with candidates of all clients known, or of one; who is "
        f"on the front of which",
        ["method", "accuracy", "±", "AUC, all known", "attack", "one known", "on the front"],
        rows,
    )
