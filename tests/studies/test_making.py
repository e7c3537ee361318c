"""Cells that other processes make."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from studies.catalogue import Asked
from studies.cells import Cells
from studies.hub import Hub
from studies.loaders.folder import DataError
from studies.making import make_all
from studies.settings import Setting


@pytest.mark.long
@pytest.mark.slow
def test_cells_are_made_by_processes(tmp_path: Path) -> None:
    """Each is named once it is kept, and one that is there is not made again. What stops a process
    stops all: its error arrives as it is, and no other cell is begun.
    """
    few = Setting("synthetic", "mlp", clients=20, samples=20)
    missing = Setting("fashion-mnist", "mlp", data_dir=tmp_path / "none")
    tasks = [("costs", replace(few, seed=seed)) for seed in (0, 1)]
    tasks.append(("bounds", few))
    cells = Cells(tmp_path / "cells")
    there = cells.made(*tasks[0], lambda: {"seconds": {"training": -1.0}})
    stopped = make_all(cells, [*tasks, ("costs", missing)], processes=2)
    assert "costs synthetic-mlp-dir01-20-1-20" == next(stopped).partition(":")[0]
    with pytest.raises(DataError, match="none"):
        next(stopped)
    assert [2, 0] == [len(cells.of(study)) for study in ("costs", "bounds")]
    (line,) = make_all(cells, tasks, processes=2)
    assert line.startswith("bounds synthetic-mlp-dir01-20-0-20:")
    assert there in cells.of("costs")
    assert [2, 1] == [len(cells.of(study)) for study in ("costs", "bounds")]
    assert [] == [*make_all(cells, tasks, processes=2)]


def test_a_study_that_asks_nothing_starts_no_service(monkeypatch: pytest.MonkeyPatch) -> None:
    """A service is started by the first question."""
    started: list[str] = []
    monkeypatch.setattr("studies.hub.Client", lambda url, **_: started.append(url))
    with Hub() as hub:
        assert [] == started
    assert hub.client is None
    assert [":memory:"] == started


def test_all_are_the_cells_of_the_page() -> None:
    """A run from nothing makes all that are kept, and those of fewer seeds none of others."""
    kept = Cells()
    every = {*Asked("all").cells()}
    for study in Asked("all").studies:
        assert {(study.NAME, cell.setting) for cell in kept.of(study.NAME)} <= every
    assert {*Asked("all", seeds=1).cells()} < every
    assert {"synthetic"} == {setting.data for _, setting in Asked("all", "synthetic").cells()}
