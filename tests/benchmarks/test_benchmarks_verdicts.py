"""What is said of a retrieval follows from what was measured."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from benchmarks.harness import Race
from benchmarks.report import Row
from benchmarks.retrieval import verdicts
from benchmarks.retrieval.peers import DATASKETCH, FAISS
from benchmarks.retrieval.planted_models import BACKGROUNDS, NEAR
from benchmarks.retrieval.searches import BYTES, EXACT, READ, SKETCHES, VALUES, Filled, Searched
from benchmarks.subjects.blinding import BACK, MOVED, PEERS
from benchmarks.subjects.blinding import judged as blinding_judged

TIMES = {READ: 0.5, BYTES: 1.0, VALUES: 1.2, SKETCHES: 4.0, EXACT: 6.0, FAISS: 0.9, DATASKETCH: 80}
MIXED = next(each for each in BACKGROUNDS if each.name == verdicts.COMPARED)


def searched(n: int = verdicts.CROWDED, missed: int = 0) -> Searched:
    """Ten queries, each in its milliseconds; of a hundred kin every way but one missed some."""
    found = {name: np.ones((10, NEAR), bool) for name in TIMES if name not in (READ, EXACT)}
    for name in found:
        found[name].flat[: missed if name == SKETCHES else 5] = False
    return Searched(
        n,
        MIXED,
        Race({name: [ms / 1e3] * 10 for name, ms in TIMES.items()}),
        found,
        {name: Filled(100.0, 1e9) if name == DATASKETCH else Filled(1.0, 1e7) for name in found},
    )


def row(rows: list[Row], word: str) -> Row:
    """The one row that speaks of it."""
    (found,) = [each for each in rows if word in each.figure]
    return found


def test_recall_is_judged_from_a_hundred_thousand_models_on() -> None:
    """One kin of a hundred missed is met, two are not; of few models nothing was promised."""
    judged = [
        row(verdicts.findings([each]).rows, "recall@10").met
        for each in (searched(missed=1), searched(missed=2), searched(n=10_000, missed=2))
    ]
    assert [True, False, None] == judged


def test_the_time_before_exact_overlaps_counts_at_a_hundred_thousand() -> None:
    """There 4 ms are within 6; for a million, the target of all stages together is 25."""
    rows = verdicts.findings([searched()]).rows
    assert ("4 ms (p95 4 ms)", True) == (
        row(rows, "p50, before").ours,
        row(rows, "p50, before").met,
    )
    million = verdicts.findings([searched(n=1_000_000)]).rows
    assert "6 ms (p95 6 ms)" == row(million, "40 exact overlaps included").ours


def test_a_peer_is_held_against_both_stages() -> None:
    """datasketch takes 20 times as long as sketches, and 100 times as much to fill and to hold."""
    rows = verdicts.findings([searched()]).rows
    words = ("signatures and sketches, recall", "signatures alone, rec", "in a second", "bytes of")
    ratios = [row(rows, word).ratio for word in words]
    assert ["20× (20–20)", "66.7× (66.7–66.7)", "100× (100–100)", "100× (100–100)"] == ratios


def test_a_scan_that_is_slower_or_finds_less_misses() -> None:
    """Slower than faiss by a tenth, or as fast with no more found: both are a no."""
    slower = searched()
    slower.found[FAISS].flat[:10] = False
    assert not row(verdicts.findings([slower]).rows, "the scan alone").met
    faster = replace(slower, race=Race({**slower.race.samples, FAISS: [0.002] * 10}))
    assert row(verdicts.findings([faster]).rows, "the scan alone").met
    faster.found[FAISS][:] = True
    assert not row(verdicts.findings([faster]).rows, "the scan alone").met


def test_every_way_is_a_line_with_its_recall_at_one_n() -> None:
    """Lines cover all n of a contender, and show the recall at 100,000."""
    small, large = searched(n=10_000), searched(missed=3)
    del small.found[FAISS]
    lines = {line.name: line for line in verdicts.lines([small, large])}
    assert [10_000, 100_000] == list(lines[SKETCHES].models)
    assert [100_000] == list(lines[FAISS].models)
    assert 0.97 == lines[SKETCHES].recall


def test_an_index_is_blinded_within_its_nanoseconds() -> None:
    """The median decides each way: 5 ns are within the target, 5.5 are not."""
    times = {MOVED: [4e-9, 5e-9, 9e-9], BACK: [4e-9, 5.5e-9, 6e-9]}
    peers = {name: [50e-9] * 3 for name in PEERS.values()}
    rows = blinding_judged(Race({**times, **peers}), m=100, k=1)
    assert [True, False] == [each.met for each in rows]
    assert "5.00 ns an index (4.00–9.00)" == rows[0].ours
