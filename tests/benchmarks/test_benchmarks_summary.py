"""The summary of the benchmarks is made of their tables, which have a place for every subject."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import __main__ as program
from benchmarks import summary
from benchmarks.report import Findings, Row, markdown
from benchmarks.summary import DECIDING, FOLDER, PAGES, Section, sections, written

LONG = "a figure with so long a name, and so much beside it, that its row continues in another line"
OF_MODELS = [
    Row(LONG, "3 ms", f"another that does {LONG}: 4 ms", "", "≤ 2 ms", False),
    Row("first: time", "1 s", "the other: 9 s", "9× (8–10)", "≥ 3×", True),
    Row("first: memory", "2 MB; more of it", "", ""),
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A summary, and two pages with the sections of two subjects."""
    own = (tmp_path / "figures" / "a.md", tmp_path / "figures" / "b.md")
    own[0].parent.mkdir()
    for page, subject in zip(own, ("fast", "a-small"), strict=True):
        places = _place(subject)
        page.write_text(f"# About {subject}\n\n## What is {subject}\n\n{places}")
    (tmp_path / "figures.md").write_text(f"top\n{_place('deciding')}\n{_place('targets')}bottom\n")
    monkeypatch.setattr(summary, "PAGE", tmp_path / "figures.md")
    monkeypatch.setattr(summary, "FOLDER", own[0].parent)
    monkeypatch.setattr(summary, "PAGES", own)
    figures = (
        summary.Deciding("fast", "first: time", "for one", "It is quick."),
        summary.Deciding("a-small", "first: memory", "of memory", "It is small."),
        summary.Deciding("fast", LONG, "for all", "It is slow."),
    )
    monkeypatch.setattr(summary, "DECIDING", figures)
    return tmp_path


def _place(subject: str) -> str:
    return f"<!-- {subject}: begin, by `make bench` -->\n<!-- {subject}: end -->\n"


def test_figures_come_from_their_rows(folder: Path) -> None:
    """Each has its value, what stands beside it, its verdict, its table and its command."""
    section = markdown(Findings(OF_MODELS), "a machine")
    summary.write({"fast": section, "a-small": section})
    said = " ".join((folder / "figures.md").read_text().split())
    assert said.startswith("top ")
    assert said.endswith(" bottom")
    assert (
        "1. **1 s** for one (the other: 9 s, 9× (8–10); target ≥ 3×, met). It is quick. "
        "[Table](figures/a.md#what-is-fast), `python -m benchmarks fast`." in said
    )
    assert "2. **2 MB** of memory (more of it). It is small." in said
    assert "`python -m benchmarks a small`" in said
    assert f"3. **3 ms** for all (another that does {LONG}: 4 ms; target ≤ 2 ms" in said
    assert "**missed**" in said
    assert "- **[About fast](figures/a.md)**: [What is fast](figures/a.md#what-is-fast) **1 of 2**."


def test_a_figure_that_is_no_more_is_named(folder: Path) -> None:
    """A summary never keeps the figure of a row that its table has lost."""
    with pytest.raises(ValueError, match="What is fast has no figure 'first: time'"):
        summary.write({"fast": markdown(Findings(OF_MODELS[:1]), "a machine")})
    assert "**1 s**" not in (folder / "figures.md").read_text()


@pytest.mark.usefixtures("folder")
def test_a_subject_without_a_place_is_refused() -> None:
    """The message says what to add."""
    with pytest.raises(ValueError, match="no page of docs/figures has a place for other"):
        summary.write({"other": "text"})


def test_the_summary_is_made_of_the_tables() -> None:
    """The page in the repository has no figure that its tables do not have."""
    assert summary.PAGE.read_text() == written()
    assert 10 == len(DECIDING)


def test_every_subject_has_one_place() -> None:
    """All subjects, and the commands of their own, are on pages of the summary's order."""
    assert {*program.SUBJECTS, "installation", "gpu", "browser"} == sections().keys()
    assert {*PAGES, FOLDER / "measuring.md"} == {*FOLDER.glob("*.md")}
    marked = "".join(page.read_text() for page in PAGES)
    assert len(sections()) == marked.count(": begin, by `make bench` -->")


def test_verdicts_are_counted_in_the_last_column() -> None:
    """A yes in another cell is none."""
    text = "| yes | 1 | 2 | | ≥ 3 | **no** |\n| a | 1 | 2 | | ≥ 3 | yes |\n| b | yes | | | | |\n"
    assert ["**no**", "yes"] == Section(Path("a.md"), "A", text).verdicts
