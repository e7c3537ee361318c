"""The plots of the studies: what is drawn, and that it is the same each time."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from studies import __main__ as command
from studies import page
from studies.cells import Cells
from studies.plots import Line, Panel, drawn
from studies.sections.curves import pictures
from studies.settings import Setting


def test_lines_are_where_their_values_are() -> None:
    """The axes span whole tenths, x grows to the right and y upwards."""
    svg = drawn(
        [Panel("a < b", [Line("one", [(1, 0.2), (3, 0.5)])])],
        title="t",
        x="rounds",
        y="share",
        ticks=(1, 3),
    )
    (points,) = re.findall(r'polyline points="([^"]+)"', svg)
    assert "0.0,200.0 250.0,0.0" == points
    assert {"a < b", "one", "rounds", "share", "0.2", "0.5"} <= {
        element.text for element in ElementTree.fromstring(svg).iter()
    }


def test_lines_of_one_value_have_a_scale() -> None:
    """Nothing is divided by the height of a line that has none."""
    svg = drawn([Panel("", [Line("", [(1, 0.5), (2, 0.5)])])], title="", x="", y="", ticks=(1, 2))
    assert 'points="0.0,200.0 250.0,200.0"' in svg


def test_doublings_are_as_wide() -> None:
    """Where x doubles from tick to tick, ticks and points are evenly apart."""
    line = Line("", [(4, 0.5), (8, 0.5), (16, 0.6)])
    words = {"title": "", "x": "", "y": ""}
    svg = drawn([Panel("", [line])], ticks=(4, 8, 16), doubling=True, **words)
    assert 'points="0.0,200.0 125.0,200.0 250.0,0.0"' in svg
    assert 'd="M125.0 200v4"' in svg


def test_pictures_are_made_of_cells_alone(tmp_path: Path) -> None:
    """The same cells make the same bytes, and a study without cells makes none."""
    made = pictures(Cells())
    assert made == pictures(Cells())
    assert {} == pictures(Cells(tmp_path))
    assert {"recall.svg", "samples.svg"} <= made.keys()
    pages = "".join(each.read_text() for each in page.FOLDER.glob("*.md"))
    for name, svg in made.items():
        assert f"(../studies/{name})" in pages
        assert "nan" not in svg


@pytest.mark.slow
def test_a_changed_picture_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The check of the page names a picture that its cells do not make, and leaves it."""
    for name, svg in pictures(Cells()).items():
        (tmp_path / name).write_text(svg)
    monkeypatch.setattr(command, "FOLDER", tmp_path)
    assert 0 == command.main(["page", "--check"])
    changed = tmp_path / "recall.svg"
    changed.write_text(changed.read_text().replace("250", "251", 1))
    before = changed.read_text()
    assert 1 == command.main(["page", "--check"])
    assert "recall.svg is not made of its cells" in capsys.readouterr().err
    assert before == changed.read_text()


def test_a_page_of_no_cells_has_no_claims(tmp_path: Path) -> None:
    """What does not hold is said of cells alone."""
    assert Cells(tmp_path).of(Setting().data) == []
    made = page.written(Cells(tmp_path))
    assert {page.PAGE, page.FOLDER / "gates.md"} == made.keys()
    assert "**" not in "".join(made.values())
