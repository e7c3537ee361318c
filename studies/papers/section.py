"""The page of the papers, made of their elements and of the pages that have the figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from studies.papers.elements import PAPERS, STATES, Element, Paper, read
from studies.papers.quotations import with_figures
from studies.sections.paragraphs import table

__all__ = ["PAGE", "blocks"]

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "papers.md"

_PURPOSE: Final = "*For researchers: what of the papers is here, and what it gives. 20 minutes.*"
_WORDS: Final = """\
modelkin is built on three papers. Each element of them has a row: a definition, algorithm, bound,
table, figure, rival or claim. The last columns have the paper's figure and ours, which is quoted
from the page that a command made. Ours are of scikit-learn's digits and small networks unless a row
says otherwise, so they say what holds between methods, and not what accuracy to expect. A
plus-minus is half of a 95% interval over seeds; of three seeds or fewer, which say little, the
least and the greatest stand in parentheses. Commands run in a clone, where `make .venv/.dev`
installs what they need.
"""
_COLUMNS: Final = ("element", "state", "where", "the paper", "here")


def blocks(made: Mapping[Path, str]) -> Iterator[str]:
    """The paragraphs and tables of the page.

    Args:
        made: pages that are about to be written; figures are quoted from these, and from all
            others as they are.
    """
    folder = PAGE.parent
    pages = {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*.md")}
    pages |= {path.relative_to(folder).as_posix(): text for path, text in made.items()}
    papers = [read(name) for name in PAPERS]
    yield "# The papers, element by element"
    yield _PURPOSE
    yield _WORDS
    yield _totals(papers)
    for paper in papers:
        yield f"## {paper.title}"
        yield paper.about
        yield table(_COLUMNS, (_row(each, pages) for each in paper.elements))


def _totals(papers: list[Paper]) -> str:
    counts = [Counter(each.state for each in paper.elements) for paper in papers]
    columns = ("state", "what it means", *(paper.title.partition(":")[0] for paper in papers))
    rows = (
        (state, meaning, *(str(count[state]) for count in counts))
        for state, meaning in STATES.items()
    )
    return table(columns, rows)


def _row(each: Element, pages: Mapping[str, str]) -> tuple[str, ...]:
    printed = f" ({', '.join(each.printed)})" if each.printed else ""
    where = [f"`{name}`" for name in each.code]
    where += [f"`{each.command}`"] if each.command else []
    here = " ".join(part for part in (with_figures(each.ours, pages), each.note) if part)
    return f"{each.name}{printed}", each.state, ", ".join(where), each.paper, here
