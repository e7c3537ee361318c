"""The benchmark of an installation: what it runs is five lines, and its sum is judged."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks.installation import FIVE_LINES, Step, findings, timed


@pytest.mark.slow
def test_five_lines_find_neighbours(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The program has five lines and answers the model that shares most indices first."""
    assert 5 == len(FIVE_LINES.splitlines())
    step = timed((sys.executable, "-c", FIVE_LINES), tmp_path)
    said = capfd.readouterr().out
    assert -1 < said.index("AE") < said.index("BC"), said
    assert step.seconds > step.busy / 8 > 0


def test_a_target_is_met_or_not() -> None:
    """The sum of the first three steps is judged; of full caches it is that of the medians."""
    cold = {name: Step(30.0, 20.0) for name in ("venv", "pip", "first", "again")}
    warm = [{name: Step(seconds, 5.0) for name in cold} for seconds in (1.0, 10.0, 100.0)]
    found = findings(cold, warm)
    assert [("30 s", True), ("90 s", False)] == [(row.ours, row.met) for row in found.rows]
    assert ["venv", "30 s", "20 s", "10 s", "5 s"] == found.tables[0].rows[0]
