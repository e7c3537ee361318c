"""Cells are kept, found again, and never trusted where they are damaged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from studies.cells import Cells, Figures
from studies.settings import Setting


def test_a_cell_is_made_once(tmp_path: Path) -> None:
    """A run that was stopped goes on: what is in a file is not made again."""
    made: list[int] = []

    def make() -> Figures:
        made.append(1)
        return {"IOS": {"R@8": 0.123456789}}

    cells, setting = Cells(tmp_path), Setting(seed=4)
    first = cells.made("retrieval", setting, make)
    assert first == Cells(tmp_path).made("retrieval", setting, make)
    assert [first] == cells.of("retrieval")
    assert {"IOS": {"R@8": 0.12346}} == first.figures
    assert [1] == made
    assert [] == cells.of("clusters")


def test_a_cell_says_what_made_it(tmp_path: Path) -> None:
    """Its file has the versions, the seed and the whole setting."""
    Cells(tmp_path).made("retrieval", Setting(seed=4), lambda: {"IOS": {"R@8": 1.0}})
    (path,) = (tmp_path / "retrieval").iterdir()
    assert "digits-cnn-dir01-40-4.json" == path.name
    read = json.loads(path.read_text())
    assert {"torch", "numpy", "modelkin", "python"} <= read["versions"].keys()
    assert 4 == read["setting"]["seed"]


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"setting": {"colour": 1}, "figures": {}}'])
def test_a_damaged_file_is_named(tmp_path: Path, text: str) -> None:
    """What is not a cell is an error that says which file to delete."""
    path = tmp_path / "retrieval" / f"{Setting().name}.json"
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises(ValueError, match=f"{path.name} is not a cell"):
        Cells(tmp_path).of("retrieval")
