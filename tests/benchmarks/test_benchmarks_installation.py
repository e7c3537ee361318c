"""The benchmark of an installation: what it runs is five lines, and its sum is judged."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks.installation import COMPLETE, FIVE_LINES, LINE, Step, findings, timed
from benchmarks.service.installed import loop_rows, sizes, table_of_sizes

ROOT = Path(__file__).parents[2]


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
    found = findings(cold, warm, {"numpy": 60.0, "llvmlite": 250.0})
    assert [("30 s", True), ("90 s", False), ("310 MB", False)] == [
        (row.ours, row.met) for row in found.rows
    ]
    assert ["venv", "30 s", "20 s", "10 s", "5 s"] == found.tables[0].rows[0]


def test_the_lines_are_those_of_the_pages() -> None:
    """What is measured is what a reader types."""
    assert f"\n{LINE}" in (ROOT / "README.md").read_text()
    assert COMPLETE in (ROOT / "README.md").read_text()


def test_sizes_are_of_files(tmp_path: Path) -> None:
    """The files that a distribution lists, and no others; small ones share a row."""
    packages = tmp_path / "lib" / "python3.11" / "site-packages"
    about = packages / "large-1.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Name: large\nVersion: 1\n")
    (about / "RECORD").write_text("large.py,,\ngone.py,,\n")
    (packages / "large.py").write_bytes(bytes(20_000_000))
    (packages / "unlisted.py").write_bytes(bytes(20_000_000))
    assert {"large": 20.0} == sizes(tmp_path)
    table = table_of_sizes({"large": 20.0, "a": 1.0}, {"large": 20.0, "a": 1.0, "b": 12.0, "c": 2})
    assert [["large", "20", "20"], ["b", "", "12"]] == table.rows[:2]
    assert [["2 others", "1", "3"], ["all", "21", "35"]] == table.rows[2:]


def test_loops_are_compared_within_a_round() -> None:
    """Each call has the ratio of its rounds."""
    rounds = [{"fast": {"lineage": fast}, "reference": {"lineage": 2.0}} for fast in (1.0, 2.0)]
    [row] = loop_rows(rounds)
    assert ("2e+03 ms", "with numba: 1e+03 ms") == (row.ours, row.peer)
    assert "1.5× (1–2)" == row.ratio
