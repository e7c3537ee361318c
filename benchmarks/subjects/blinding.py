"""Measure what an index costs that a secret order moves, and one that is moved back.

In the time of the processor: a target of a few nanoseconds must not depend on who else computes.
"""

from __future__ import annotations

import time
from functools import partial

import numpy as np

from benchmarks.data import uniform_support
from benchmarks.harness import Contender, Race, race, use_kernels
from benchmarks.report import Findings, Row, Table, range_of
from modelkin import Blinding, Support
from modelkin.core.indices import IndexArray

LIBRARIES = ("numpy", "numba")

SIZES, QUICK_SIZES = (1_000_000, 100_000_000), (60_000,)
DENSITY = 0.05
KEY = "c0ffee00" * 8
MOST_NS = 5.0

MOVED, BACK, SORTED = "moved", "moved back", "the moved ones sorted"
PLAIN_MOVED, PLAIN_BACK = "moved, numpy", "moved back, numpy"
PEERS = {MOVED: PLAIN_MOVED, BACK: PLAIN_BACK}


def run(quick: bool) -> Findings:
    """Move the indices of a support at each size, and move them back."""
    findings = Findings([])
    try:
        for m in QUICK_SIZES if quick else SIZES:
            support = uniform_support(m, DENSITY)
            blinding = Blinding(KEY, m)
            raced = _raced(blinding, support, 2 if quick else 15)
            findings.rows.extend(judged(raced, m, support.k))
            findings.rows.append(_identical(blinding, support))
            findings.tables.append(_times(raced, m, support.k))
    finally:
        use_kernels("auto")
    return findings


def _raced(blinding: Blinding, support: Support, rounds: int) -> Race:
    moved = blinding.places(support.indices)
    contenders = [
        Contender(MOVED, partial(blinding.places, support.indices), _on("fast")),
        Contender(BACK, partial(blinding.places, moved, inverse=True), _on("fast")),
        Contender(PLAIN_MOVED, partial(blinding.places, support.indices), _on("reference"), 3),
        Contender(PLAIN_BACK, partial(blinding.places, moved, inverse=True), _on("reference"), 3),
        Contender(SORTED, partial(np.sort, moved)),
    ]
    return race(contenders, rounds, time.thread_time)


def _on(which: str) -> partial[None]:
    return partial(use_kernels, which)


def judged(raced: Race, m: int, k: int) -> list[Row]:
    """The nanoseconds of an index each way, by the target."""
    rows = []
    for name, peer in PEERS.items():
        ours, plain = (raced.seconds(each).times(1e9 / k) for each in (name, peer))
        rows.append(
            Row(
                f"M = {m:,}: {name}",
                f"{ours.median:.2f} ns an index ({ours.least:.2f}–{ours.most:.2f})",
                f"numpy: {plain.median:.1f} ns",
                range_of(raced.ratio(peer, name)),
                f"≤ {MOST_NS:g} ns",
                ours.median <= MOST_NS,
            )
        )
    return rows


def _identical(blinding: Blinding, support: Support) -> Row:
    """Whether both kernels move each index to one place, and back to where it was."""
    found: list[IndexArray] = []
    for which in ("fast", "reference"):
        use_kernels(which)
        moved = blinding.places(support.indices)
        found += [moved, blinding.places(moved, inverse=True)]
    same = np.array_equal(found[0], found[2]) and all(
        np.array_equal(support.indices, back) for back in found[1::2]
    )
    said = f"{support.k:,} indices, {'the same' if same else 'NOT the same'}"
    what = f"M = {blinding.num_parameters:,}: numba against numpy, there and back"
    return Row(what, said, "", "", "bit-identical", same)


def _times(raced: Race, m: int, k: int) -> Table:
    rows = []
    for name in raced.samples:
        each = raced.seconds(name).times(1e9 / k)
        rows.append([name, f"{each.median:.2f} ns", f"{each.least:.2f} ns – {each.most:.2f} ns"])
    title = f"M = {m:,}, K = {k:,}, an index"
    return Table(title, ["one thread, its own time", "median", "least – most"], rows)
