"""Federations on Flower's own engines, where their environment is there.

``make flower`` makes it. That takes minutes, and so does the SuperLink: its tests need
``FLOWER_ENGINES=1``, with which a missing environment is made as well.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from tests.soak.federations import flower_engines
from tests.soak.federations.flower_engines import LATE, LEARNGENES, SHARDS, Place

ASKED = os.environ.get("FLOWER_ENGINES") == "1"
HOME = Path(os.environ.get("FLOWER_ENGINES_HOME", Path(sys.prefix) / "flower"))


@pytest.fixture(scope="module")
def home() -> Path:
    """The environment of the engines."""
    if not ASKED and not flower_engines.is_complete(HOME):
        pytest.skip("no environment of Flower's engines: `make flower` makes one")
    reason = None if flower_engines.is_complete(HOME) else flower_engines.environment(HOME)
    if reason is not None:
        pytest.skip(f"Flower's engines cannot be installed here: {reason[:200]}")
    return HOME


def test_rounds_on_ray_are_the_average(home: Path, tmp_path: Path) -> None:
    """Three clients in Flower's simulation: every round is the float64 average of all."""
    *rounds, _ = flower_engines.simulation(Place(home, tmp_path), SHARDS).splitlines()
    assert 3 == len(rounds)
    for line in rounds:
        assert "clients [0, 1, 2], 100% of the values moved" in line


def test_flwr_run_runs_the_example(home: Path, tmp_path: Path) -> None:
    """Twelve simulated clients are in three clusters by how they turn digits; models are saved."""
    *clusters, accuracy, models = flower_engines.example(Place(home, tmp_path)).splitlines()
    turned = [", ".join(f"clinic-{part:02}" for part in range(turn, 12, 3)) for turn in range(3)]
    assert turned == sorted(line.partition(": ")[2] for line in clusters)
    by_round = json.loads(accuracy.partition(": ")[2])
    assert 5 == len(by_round)
    assert by_round[-1] >= 0.85
    assert models == f"models: {tmp_path / 'models'}"
    assert 4 == len(list((tmp_path / "models").glob("*.safetensors")))


def test_learngenes_on_ray_are_the_averages_of_clusters_by_data(home: Path, tmp_path: Path) -> None:
    """Private layers stay, also when a client fails; one that joins late gets its cluster's."""
    *rounds, _ = flower_engines.simulation(Place(home, tmp_path), LEARNGENES).splitlines()
    assert 4 == len(rounds)
    assert ["left out" in line for line in rounds] == [False, True, False, False]
    assert "out of memory" in rounds[1]


@pytest.mark.skipif(not ASKED, reason="takes 2 minutes: set FLOWER_ENGINES=1 to run it")
def test_learngenes_on_a_superlink_outlast_a_supernode(home: Path, tmp_path: Path) -> None:
    """One of six SuperNodes is killed in the second round, and another one joins in the third."""
    *rounds, _ = flower_engines.superlink(Place(home, tmp_path), LEARNGENES).splitlines()
    assert 4 == len(rounds)
    assert "left out" not in rounds[0]
    assert rounds[1].endswith("left out: it did not answer in time")
    assert ["6]" in line for line in rounds] == [False, False, True, True]


@pytest.mark.skipif(not ASKED, reason="takes 2 minutes: set FLOWER_ENGINES=1 to run it")
def test_rounds_on_a_superlink_outlast_a_supernode(home: Path, tmp_path: Path) -> None:
    """One of three SuperNodes is killed in the second round: its shard stays, the rest is exact."""
    *rounds, _ = flower_engines.superlink(Place(home, tmp_path), SHARDS).splitlines()
    assert 3 == len(rounds)
    assert "clients [0, 1, 2], 100% of the values moved" in rounds[0]
    for line in rounds[1:]:
        assert "clients [0, 2], 67% of the values moved" in line


@pytest.mark.skipif(not ASKED, reason="takes 5 minutes: set FLOWER_ENGINES=1 to run it")
def test_a_late_client_on_a_superlink_counts_in_a_later_round(home: Path, tmp_path: Path) -> None:
    """Messages of two closed rounds wait for it; it counts in the third, and trained once."""
    *rounds, trained = flower_engines.superlink(Place(home, tmp_path), LATE).splitlines()
    assert 3 == len(rounds)
    for line in rounds[:2]:
        assert "clients [0, 1, 2], " in line
    assert "clients [0, 1, 2, 3], the last 2 rounds late, " in rounds[2]
    assert "the slow client trained in rounds [1]" == trained
