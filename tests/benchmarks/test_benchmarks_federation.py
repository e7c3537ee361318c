"""Targets of federations are judged by the ends of intervals, and claims are capped as by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks.federation import both, robust, stragglers, weights
from benchmarks.federation.claims import CLIENTS, capped, claims_of

LOW, HIGH = [0.3, 0.9], [0.0, 0.0]
"""A difference of 0.6 whose interval of two seeds has both signs."""


class Uncertain(dict[Any, list[float]]):
    """Figures of two seeds: ours are ahead on average, and not beyond the interval."""

    def __init__(self, *theirs: str) -> None:
        super().__init__()
        self._theirs = theirs

    def __missing__(self, key: Any) -> list[float]:
        return HIGH if key[-1] in self._theirs else LOW


def test_no_target_is_met_by_a_mean_alone() -> None:
    """All four tables call an uncertain lead not met, whatever its mean."""
    rivals = {way.name for way in (both.CLUSTERS, both.ONE)}
    rows = [
        *weights.judged(Uncertain(weights.SAMPLES)),
        *(r for r in both.judged(Uncertain(*rivals)) if r.peer.partition(":")[0] in rivals),
    ]
    found = Uncertain()
    for split in robust.SPLITS:
        found[split, robust.NONE, robust.FEDAVG] = HIGH
    rows += robust.judged(found)
    later = Uncertain(stragglers.ROUNDS.name, stragglers.CLOSED.name)
    rows += [row for row in stragglers.judged(later) if row.target.startswith("above")]
    assert len(rows) == 6 + 4 + 18 + 2
    assert not any(row.met for row in rows)


def test_a_cap_takes_what_is_counted_by_hand() -> None:
    """Of claims with a median of 10, a cap of 2 leaves 20 of 100; a liar gets as much."""
    found = capped(np.array([10, 10, 10, 10, 100, 8]), 2.0)
    assert found.taken == pytest.approx(80 / 148)
    assert found.clients == pytest.approx(1 / 6)
    assert found.liar == pytest.approx(20 / 80)
    assert capped(np.array([10, 10, 10, 10, 100, 8]), None).liar == pytest.approx(1)


def test_samples_are_dealt_whole() -> None:
    """Each draw deals all samples, the fewer labels a client has the less evenly."""
    even, skewed = ([claims_of(alpha, seed) for seed in range(20)] for alpha in (10.0, 0.1))
    assert {1800} == {int(each.sum()) for each in (*even, *skewed)}
    assert CLIENTS == len(even[0])
    assert np.std(even) < np.std(skewed)
