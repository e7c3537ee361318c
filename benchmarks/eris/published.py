"""Measure what methods learn of data that the literature uses, and what they show.

``--data-dir`` names their folder, such as that of ``python -m studies data``. Ten clients alike
have 16 samples each besides the canaries outside, and one step a round; attacks and canaries are
those of the leakage's figures.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import torch

from benchmarks.eris.data import Dataset, digits, given
from benchmarks.eris.leakage.leaks import Leak, Setting, leaks
from benchmarks.eris.leakage.sizes import CLIENTS, ROUNDS
from benchmarks.eris.leakage.trainings import GLOBAL, with_any
from benchmarks.eris.membership import CANARIES
from benchmarks.report import Findings, Row, Table

LIBRARIES = ("numpy", "torch", "scikit-learn")

SAMPLES, SEEDS = 16, 2
PAPER: Final[Mapping[str, Mapping[str, str]]] = {
    "MNIST": {"FedAvg": "89.23 / 65.78", "ERIS, A = 50": "89.27 / 55.60"},
    "IMDB": {"FedAvg": "80.52 / 66.91", "ERIS, A = 50": "80.49 / 54.72"},
}
"""Accuracies of test and membership, in percent, of Tables 8 and 12: with 16 samples, and of ERIS
all values. The networks are DistilBERT and LeNet-5."""


def run(quick: bool) -> Findings:
    """Train without and with noise, on the digits and on what is given of the paper's data."""
    torch.set_num_threads(1)  # as everywhere in these benchmarks
    named = (data for data in given() if data.name in PAPER)
    found = {data.name: _leaks(data, quick) for data in [digits(), *named]}
    rows = [_row(name, of) for name, of in found.items()]
    return Findings(rows, [_table(found)])


def _leaks(data: Dataset, quick: bool) -> dict[str, Leak]:
    known = SAMPLES - CANARIES // 2
    setting = Setting(CLIENTS, known, CANARIES, 1 if quick else ROUNDS)
    return {
        leak.name: leak
        for each in with_any("FedAvg", "LDP, sigma = 0.1")
        for leak in leaks(data, each, 1 if quick else SEEDS, setting)
    }


def _row(name: str, found: Mapping[str, Leak]) -> Row:
    fedavg, shard = found["FedAvg"], found["ERIS, A = 50"]
    return Row(
        f"{name}: AUC, all candidates known, one of 50 shards",
        f"{shard.area:.3f}",
        f"FedAvg: {fedavg.area:.3f}",
        f"{shard.area - fedavg.area:+.3f}",
    )


def _table(found: Mapping[str, Mapping[str, Leak]]) -> Table:
    names = [name for name in next(iter(found.values())) if name != GLOBAL]
    rows = []
    for data, of in found.items():
        for name in names:
            leak = of[name]
            figures = f"{leak.accuracy:.2f}", f"{leak.area:.2f}", f"{leak.alone:.2f}"
            rows.append([data, name, *figures, PAPER.get(data, {}).get(name, "")])
    return Table(
        f"Accuracy after {ROUNDS} rounds of {CLIENTS} clients with {SAMPLES} samples, "
        f"and AUC of the best attack, {SEEDS} seeds; beside them the accuracies of test and "
        f"membership, in percent, of Tables 8 and 12, with {SAMPLES} samples and larger networks",
        ["data", "method", "accuracy", "AUC, all known", "one known", "the paper's"],
        rows,
    )
