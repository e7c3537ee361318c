"""Measure ``ShardedMean`` of four processes over gloo beside gather and broadcast, FedAvg's way.

Every round runs all contenders between barriers, so a ratio compares the same moment of the
machine. ``all_reduce`` is faster and shows partial sums to the ranks.
"""

from __future__ import annotations

import json
import tempfile
from multiprocessing import get_context
from pathlib import Path

from benchmarks import report
from benchmarks.eris.rank_processes import CONCEALED, GATHER, PLAIN, THINNED, run_ranks
from benchmarks.harness import Race
from benchmarks.report import Findings, Row, at_most, duration

LIBRARIES = ("torch", "cryptography")

M, QUICK_M = 5_000_000, 20_000
ROUNDS, QUICK_ROUNDS = 20, 3
RANKS, QUICK_RANKS = 4, 3


def run(quick: bool) -> Findings:
    """Race them; the target is twice the time of gather and broadcast."""
    m = QUICK_M if quick else M
    with tempfile.TemporaryDirectory() as folder:
        ranks, rounds = (QUICK_RANKS, QUICK_ROUNDS) if quick else (RANKS, ROUNDS)
        _run_ranks(folder, ranks, m, rounds)
        race = Race(json.loads(Path(folder, "times.json").read_text()))
    rows = list[Row]()
    for name, target in ((PLAIN, 2.0), (CONCEALED, None), (THINNED, None), ("all_reduce", None)):
        figure = f"{name}, M = {m:,}"
        ours, peer = (duration(race.seconds(each).median) for each in (name, GATHER))
        ratio = race.ratio(name, GATHER)
        if target is not None and not quick:
            rows.append(at_most(figure, ours, f"{GATHER}: {peer}", ratio, target))
        else:
            rows.append(Row(figure, ours, f"{GATHER}: {peer}", report.range_of(ratio)))
    return Findings(rows)


def _run_ranks(folder: str, ranks: int, m: int, rounds: int) -> None:
    """One process a rank, over gloo on this machine; this process may have threads to fork with."""
    started = get_context("spawn").Process(target=run_ranks, args=(ranks, folder, m, rounds))
    started.start()
    started.join()
    if started.exitcode:
        raise RuntimeError(f"the race ended with {started.exitcode}")
