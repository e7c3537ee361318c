"""The page of evidence, made of the cells alone; it opens with when not to use the method."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final

from studies import estimate_sections, gains, group_sections, opening, sections, training_sections
from studies.cells import Cells
from studies.gates import gates_of
from studies.real import section as real
from studies.real.gates import gates_of_real
from studies.real.results import results
from studies.settings import DIRICHLET
from studies.tables import (
    bounds,
    clusters,
    costs,
    disclosure,
    epochs,
    estimates,
    lengths,
    newcomers,
    numbers,
    ordered,
    personal,
    privacy,
    retrieval,
    samples,
    uplift,
)

__all__ = ["PAGE", "written"]

_LINE: Final = 120
PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "evidence.md"

_SOURCE: Final = """\
Every figure on this page comes from a command of the repository, and its raw numbers are in
`docs/studies/`. Supports went up to a service, and all neighbours, matrices, clusters and donors
came back over HTTP. [The gates](#gates) at the end say what was to be reproduced, and what is
missed.
"""

_SECTIONS: Final[tuple[tuple[str, str, str, sections.Section], ...]] = (
    ("Neighbours (Table 3)", "table3", retrieval.NAME, sections.neighbors),
    ("Donors (Tables 4 and 5)", "table4", retrieval.NAME, sections.donors),
    ("What a donor's model gives (Table 4)", "uplift", uplift.NAME, training_sections.uplift),
    ("The size of a support (Table 9)", "table9", retrieval.NAME, sections.sizes),
    ("Local epochs (Table 11)", "table11", epochs.NAME, sections.each_federation(sections.epochs)),
    (
        "Clusters (Table 1)",
        "table1",
        clusters.NAME,
        sections.each_federation(group_sections.clusters),
    ),
    ("Groups of a free number", "numbers", numbers.NAME, group_sections.numbers),
    ("Groups that differ by little", "samples", samples.NAME, training_sections.samples),
    (
        "Clusters of unlike labels (Tables 2 and 8, Figures 2 to 4)",
        "table8",
        personal.NAME,
        training_sections.personal,
    ),
    ("Newcomers of clusters", "newcomers", newcomers.NAME, training_sections.newcomers),
    ("Local epochs of clusters (Table 10)", "table10", lengths.NAME, training_sections.lengths),
    ("What it costs (Tables 6 and 7)", "table6", costs.NAME, sections.costs),
    (
        "What a support gives away",
        "disclosure",
        disclosure.NAME,
        sections.each_federation(sections.disclosure),
    ),
    ("Private supports", "private", privacy.NAME, sections.private_supports),
    ("Ordered supports", "ordered", ordered.NAME, gains.ordered),
    ("What a support is estimated with", "estimates", estimates.NAME, estimate_sections.estimates),
    ("The paper's bounds", "bounds", bounds.NAME, estimate_sections.bounds),
)

_OTHER_DATA: Final = (
    "## Other data and networks",
    """\
Each command takes `--data`, `--network` and `--clients 20`, and keeps its cells beside those of
this page. Data that come as files are read from `--data-dir`; a fifth of each class is for testing,
whatever the archives keep for it.
""",
    sections.table(
        ("`--data`", "files in `--data-dir`", "`--network`"),
        (
            ("digits, synthetic", "", "cnn, two layers, mlp"),
            ("fashion-mnist", "the four IDX files, plain or `.gz`", "cnn, two layers, mlp"),
            (
                "cifar10, cifar100",
                "the `.bin` files of the binary version",
                "cnn, two layers, mlp, resnet18, resnet50",
            ),
            ("newsgroups", "`20news-bydate-train` and `-test`", "mlp, bert"),
        ),
    ),
    """\
Messages lose their headers. Their words are runs of two or more letters, in small letters; the MLP
reads logarithms of word counts in 2,048 hashed entries, and BERT the first 127 words, hashed to its
vocabulary. The ResNets and BERT are whole: a copy of 40 ResNet-18s has 1.8 GB, one of 40 BERTs
17.5 GB, and a table keeps several.
""",
)

_JUDGED: Final = (retrieval.NAME, clusters.NAME, samples.NAME, disclosure.NAME)


def written(cells: Cells, *, judged: bool = True) -> str:
    """The whole page.

    Args:
        cells: what it is made of.
        judged: with the gates, which need all cells of a table.
    """
    blocks = ["# Evidence", opening.WORDS, *opening.advice(cells), _SOURCE]
    blocks += ["## What does not hold", *_against(cells), *group_sections.compared(cells)]
    for title, command, study, section in _SECTIONS:
        held = cells.of(study)
        if held:
            blocks += [f"## {title}", f"`python -m studies {command}`", *section(held)]
    blocks += _OTHER_DATA
    published = results(cells.folder)
    if published:
        blocks += [f"## {real.TITLE}", f"`{real.COMMAND}`", *real.section(published)]
    judging = [study for study in _JUDGED if cells.of(study)]
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
    for _, found in islice(sections.federations(cells.of(disclosure.NAME)), 1):
        yield from sections.disclosed(found)
    held = cells.of(privacy.NAME)
    if held:
        yield from sections.priced(held)
    yield from training_sections.against(*map(cells.of, (uplift.NAME, samples.NAME)))
    yield from group_sections.unfound(cells.of(numbers.NAME))
    yield from training_sections.misplaced(cells.of(newcomers.NAME))
    yield from estimate_sections.against(*map(cells.of, (estimates.NAME, bounds.NAME)))
    yield from real.claims(results(cells.folder))
