"""The benchmark of large checkpoints in a browser: its figures are those of its steps."""

from __future__ import annotations

from benchmarks.large.browser import Cost, findings


def test_both_readers_stand_beside_each_other() -> None:
    """The time of processors is added over the steps of each, and every step has its line."""
    steps = {
        "support, browser": Cost(9.0, 2.0, 300.0),
        "support, SDK": Cost(3.0, 1.0, 200.0),
        "fingerprint, browser": Cost(9.0, 6.0, 250.0),
        "fingerprint, SDK": Cost(4.0, 3.0, 220.0),
    }
    found = findings({500: steps})
    [row] = found.rows
    assert ("8 s", "2.0") == (row.ours, row.ratio)
    assert row.peer.endswith("4 s")
    assert len(steps) == len(found.tables[0].rows)
    assert found.tables[0].rows[0] == ["500 MB, support, browser", "9 s", "2 s", "300 MB"]
