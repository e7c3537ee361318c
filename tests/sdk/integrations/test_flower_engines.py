"""Averages in shards on Flower's own engines, where their environment is there.

``make flower`` makes it. That takes minutes, and so does the SuperLink: its test needs
``FLOWER_ENGINES=1``, with which a missing environment is made as well.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.soak import flower_engines

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
    *rounds, _ = flower_engines.simulation(flower_engines.Place(home, tmp_path)).splitlines()
    assert 3 == len(rounds)
    for line in rounds:
        assert "clients [0, 1, 2], 100% of the values moved" in line


@pytest.mark.skipif(not ASKED, reason="takes 2 minutes: set FLOWER_ENGINES=1 to run it")
def test_rounds_on_a_superlink_outlast_a_supernode(home: Path, tmp_path: Path) -> None:
    """One of three SuperNodes is killed in the second round: its shard stays, the rest is exact."""
    *rounds, _ = flower_engines.superlink(flower_engines.Place(home, tmp_path)).splitlines()
    assert 3 == len(rounds)
    assert "clients [0, 1, 2], 100% of the values moved" in rounds[0]
    for line in rounds[1:]:
        assert "clients [0, 2], 67% of the values moved" in line
