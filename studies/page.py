"""The page of evidence, made of the cells alone; it opens with what does not hold."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final

from studies import sections
from studies.cells import Cells
from studies.gates import gates_of
from studies.real import section as real
from studies.real.gates import gates_of_real
from studies.real.results import results
from studies.settings import DIRICHLET
from studies.tables import clusters, costs, disclosure, epochs, retrieval

__all__ = ["PAGE", "written"]

_LINE: Final = 120
PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "evidence.md"

_OPENING: Final = """\
When to use index overlaps, and when not. Every figure on this page comes from a command of the
repository, and its raw numbers are in `docs/studies/`. Supports went up to a service, and all
neighbours, matrices, clusters and donors came back over HTTP.
"""


def written(cells: Cells, *, judged: bool = True) -> str:
    """The whole page.

    Args:
        cells: what it is made of.
        judged: with the gates, which need all cells of a table.
    """
    blocks = ["# Evidence", _OPENING, "## What does not hold", *_against(cells)]
    for title, command, study, section in (
        ("Neighbours (Table 3)", "table3", retrieval.NAME, sections.neighbors),
        ("Donors (Tables 4 and 5)", "table4", retrieval.NAME, sections.donors),
        ("The size of a support (Table 9)", "table9", retrieval.NAME, sections.sizes),
        ("Local epochs (Table 11)", "table11", epochs.NAME, sections.epochs),
        ("Clusters (Tables 1 and 2)", "table1", clusters.NAME, sections.clusters),
        ("What it costs (Tables 6 and 7)", "table6", costs.NAME, sections.costs),
        ("What a support gives away", "disclosure", disclosure.NAME, sections.disclosure),
    ):
        held = cells.of(study)
        if held:
            blocks += [f"## {title}", f"`python -m studies {command}`", *section(held)]
    published = results(cells.folder)
    if published:
        blocks += [f"## {real.TITLE}", f"`{real.COMMAND}`", *real.section(published)]
    judging = [s for s in (retrieval.NAME, clusters.NAME, disclosure.NAME) if cells.of(s)]
    if judged and (judging or published):
        rows = (
            (gate.figure, f"{gate.seen:.3f}", gate.target, "yes" if gate.met else "**no**")
            for gate in (*gates_of(judging, cells), *gates_of_real(published))
        )
        blocks += ["## Gates", sections.table(("figure", "seen", "target", "met"), rows)]
    return "\n\n".join(_wrapped(block.strip()) for block in blocks) + "\n"


def _wrapped(block: str) -> str:
    """Paragraphs and lists in lines of the pages' length; tables and headings as they are."""
    if block.startswith(("|", "#")):
        return block
    items = block.split("\n- ") if block.startswith("- ") else [" ".join(block.split("\n"))]
    return "\n".join(
        textwrap.fill(
            item if number == 0 else f"- {item}",
            _LINE,
            subsequent_indent="  " if block.startswith("- ") else "",
            break_long_words=False,
            break_on_hyphens=False,
        )
        for number, item in enumerate(items)
    )


def _against(cells: Cells) -> Iterator[str]:
    yield "\n".join(f"- {claim}" for claim in _claims(cells))


def _claims(cells: Cells) -> Iterator[str]:
    for _, found in islice(sections.federations(cells.of(retrieval.NAME)), 1):
        best = sections.tuned(found, "A")
        for split in DIRICHLET:
            own = sections.of_split(found, split)
            if own:
                yield from sections.behind(own, split, best)
    held = cells.of(disclosure.NAME)
    if held:
        yield from sections.disclosed(held)
    yield from real.claims(results(cells.folder))
