"""The pages of evidence, made of the cells alone: a summary, and a page of tables a topic."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Final

from docs.line_length import MAX_LINE_LENGTH
from studies import opening
from studies.cells import Cells
from studies.gates import gates_of
from studies.lines import section as lines
from studies.lines.command import NAMES as LINES
from studies.lines.gates import gates_of_lines
from studies.lines.results import FOLLOWED
from studies.lines.results import held as lines_held
from studies.real import section as real
from studies.real.gates import gates_of_real
from studies.real.results import results
from studies.sections import definitions as definition_sections
from studies.sections import estimates as estimate_sections
from studies.sections import gains, paragraphs, published
from studies.sections import groups as group_sections
from studies.sections import importances as importance_sections
from studies.sections import membership as membership_sections
from studies.sections import training as training_sections
from studies.settings import DIRICHLET
from studies.tables import (
    bounds,
    clusters,
    costs,
    definitions,
    disclosure,
    epochs,
    estimates,
    graphs,
    importances,
    lengths,
    membership,
    newcomers,
    numbers,
    ordered,
    personal,
    privacy,
    retrieval,
    samples,
    uplift,
)

__all__ = ["FOLDER", "PAGE", "joined", "written"]

PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "evidence.md"
FOLDER: Final = PAGE.with_suffix("")
"""The folder of the pages that have the tables."""

_PURPOSE: Final = (
    "*For newcomers and researchers: decide whether index overlaps suit your case. 5 minutes.*"
)
_DECIDING: Final = """\
Each line of both lists has a figure that decides, the table that it stands in, and the command that
measures it, in a clone where `make .venv/.dev` has installed what it needs.
"""
_SOURCE: Final = """\
The tables are to look figures up in. Every figure comes from a command of the repository, and its
raw numbers are in `docs/studies/`. Supports went up to a service, and all neighbours, matrices,
clusters and donors came back over HTTP.
"""
_LINE_OF_TABLES: Final = """\
Tables to look figures up in: [the summary](../evidence.md) says what their words mean, and which
figures decide. A plus-minus is half of a 95% interval over seeds; of three seeds or fewer, which
say little, the least and the greatest stand in parentheses.
"""

_Study = tuple[str, str, str, paragraphs.Section]
"""A heading, the command that makes its cells, the study that they are of, and what it shows."""


@dataclass(frozen=True, slots=True)
class _Topic:
    """A page of tables.

    Attributes:
        name: of its file.
        title: its heading.
        about: what it has, in the summary.
        opening: what it begins with, made of all cells.
        studies: its sections.
    """

    name: str
    title: str
    about: str
    opening: Callable[[Cells], Iterator[str]] | None = None
    studies: tuple[_Study, ...] = ()


_NEIGHBOURS: Final[tuple[_Study, ...]] = (
    ("Neighbours (Table 3)", "table3", retrieval.NAME, paragraphs.neighbors),
    (
        "Neighbours by other oracles",
        "definitions",
        definitions.NAME,
        definition_sections.oracles,
    ),
    ("The size of a support (Table 9)", "table9", retrieval.NAME, paragraphs.sizes),
    (
        "Local epochs (Table 11)",
        "table11",
        epochs.NAME,
        paragraphs.each_federation(paragraphs.epochs),
    ),
)
_DONORS: Final[tuple[_Study, ...]] = (
    ("Donors (Tables 4 and 5)", "table4", retrieval.NAME, paragraphs.donors),
    ("What a donor's model gives (Table 4)", "uplift", uplift.NAME, training_sections.uplift),
)
_CLUSTERS: Final[tuple[_Study, ...]] = (
    (
        "Clusters (Table 1)",
        "table1",
        clusters.NAME,
        paragraphs.each_federation(group_sections.clusters),
    ),
    (
        "Clusters of unlike labels (Tables 2 and 8, Figures 2 to 4)",
        "table8",
        personal.NAME,
        training_sections.personal,
    ),
    ("Local epochs of clusters (Table 10)", "table10", lengths.NAME, training_sections.lengths),
    ("Averages over neighbours", "graphs", graphs.NAME, group_sections.graphs),
)
_GROUPS: Final[tuple[_Study, ...]] = (
    ("Groups of a free number", "numbers", numbers.NAME, group_sections.numbers),
    ("Groups that differ by little", "samples", samples.NAME, training_sections.samples),
    ("Newcomers of clusters", "newcomers", newcomers.NAME, training_sections.newcomers),
)
_SUPPORTS: Final[tuple[_Study, ...]] = (
    ("What it costs (Tables 6 and 7)", "table6", costs.NAME, paragraphs.costs),
    ("Ordered supports", "ordered", ordered.NAME, gains.ordered),
    ("What a support is estimated with", "estimates", estimates.NAME, estimate_sections.estimates),
    (
        "Kinds and estimators of importance",
        "importances",
        importances.NAME,
        importance_sections.importances,
    ),
    ("The paper's bounds", "bounds", bounds.NAME, estimate_sections.bounds),
)
_PRIVACY: Final[tuple[_Study, ...]] = (
    (
        "What a support gives away",
        "disclosure",
        disclosure.NAME,
        paragraphs.each_federation(paragraphs.disclosure),
    ),
    (
        "From how many samples on a label is seen",
        "definitions",
        definitions.NAME,
        definition_sections.presence,
    ),
    (
        "Membership over rounds (Figure 1)",
        "membership",
        membership.NAME,
        membership_sections.membership,
    ),
    ("Private supports", "private", privacy.NAME, paragraphs.private_supports),
)

_OTHER_DATA: Final = (
    "## Other data and networks",
    """\
Each command takes `--data`, `--network` and `--clients 20`, and keeps its cells beside those of
these pages. Data that come as files are read from `--data-dir`, and have [a page](data.md) of their
own, which also says which a command downloads. A fifth of each class is for testing, whatever the
archives keep for it; `--samples 50` leaves 50 a client.
""",
    paragraphs.table(
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


def written(cells: Cells, *, judged: bool = True) -> dict[Path, str]:
    """The text of the summary, and of each page of tables that there are cells of.

    Args:
        cells: what they are made of.
        judged: with the gates, which need all cells of a table.
    """
    made = {topic: blocks for topic in _TOPICS if (blocks := [*_tables(topic, cells)])}
    gates = [*_gates(cells)] if judged else []
    made[_GATES] = [*(("## Gates", gates[0]) if gates else ()), *_OTHER_DATA]
    listed = (f"- [{topic.title}](evidence/{topic.name}.md): {topic.about}." for topic in made)
    blocks = ["# Evidence", _PURPOSE, opening.words(cells), _DECIDING, *opening.advice(cells)]
    blocks += ["## All tables", _SOURCE, "\n".join(listed)]
    pages = {PAGE: joined(blocks)}
    for topic, tables in made.items():
        head = [f"# {topic.title}", _LINE_OF_TABLES]
        pages[FOLDER / f"{topic.name}.md"] = joined([*head, *tables])
    return pages


def _tables(topic: _Topic, cells: Cells) -> Iterator[str]:
    if topic.opening:
        yield from topic.opening(cells)
    for title, command, study, section in topic.studies:
        held = cells.of(study)
        if held:
            yield f"## {title}"
            yield f"`python -m studies {command}`"
            yield from section(held)


def _gates(cells: Cells) -> Iterator[str]:
    published, trained = results(cells.folder), lines_held(LINES, cells.folder)
    judging = [study for study in _JUDGED if cells.of(study)]
    if judging or published or trained:
        of_all = (gates_of(judging, cells), gates_of_real(published), gates_of_lines(trained))
        rows = (
            (gate.figure, f"{gate.seen:.3f}", gate.target, "yes" if gate.met else "**no**")
            for gate in chain.from_iterable(of_all)
        )
        yield paragraphs.table(("figure", "seen", "target", "met"), rows)


def joined(blocks: Iterable[str]) -> str:
    """The text of a page, its paragraphs and lists in lines of the pages' length."""
    return "\n\n".join(_wrapped(block.strip()) for block in blocks) + "\n"


def _wrapped(block: str) -> str:
    """Paragraphs and lists in lines of the pages' length; tables and headings as they are."""
    if block.startswith(("|", "#")):
        return block
    items = block.split("\n- ") if block.startswith("- ") else [" ".join(block.split("\n"))]
    return "\n".join(
        textwrap.fill(
            item if number == 0 else f"- {item}",
            MAX_LINE_LENGTH,
            subsequent_indent="  " if block.startswith("- ") else "",
            break_long_words=False,
            break_on_hyphens=False,
        )
        for number, item in enumerate(items)
    )


def _against(cells: Cells) -> Iterator[str]:
    claims = [*_claims(cells)]
    if claims:
        yield "\n".join(f"- {claim}" for claim in claims)


def _trained(cells: Cells) -> Iterator[str]:
    yield from opening.contested(cells)
    yield from group_sections.compared(cells)


def _real(cells: Cells) -> Iterator[str]:
    published = results(cells.folder)
    if published:
        yield f"`{real.COMMAND}`"
        yield from real.section(published)


def _published(cells: Cells) -> Iterator[str]:
    studies = (*_NEIGHBOURS, *_DONORS, *_CLUSTERS, *_PRIVACY)
    if not any(cells.of(study, of_files=True) for _, _, study, _ in studies):
        return
    yield from published.opening(cells)
    seen = set[str]()
    for title, command, study, section in studies:
        held = cells.of(study, of_files=True)
        if held:
            yield f"## {title}"
            yield from published.every_federation(command, section, held, seen)


def _lines(cells: Cells) -> Iterator[str]:
    held = lines_held((*LINES, FOLLOWED), cells.folder)
    if held:
        yield f"`{lines.COMMAND}`"
        yield from lines.section(held)


def _claims(cells: Cells) -> Iterator[str]:
    for _, found in islice(paragraphs.federations(cells.of(retrieval.NAME)), 1):
        best = paragraphs.tuned(found, "A")
        for split in DIRICHLET:
            own = paragraphs.of_split(found, split)
            if own:
                yield from paragraphs.behind(own, split, best)
    for _, found in islice(paragraphs.federations(cells.of(disclosure.NAME)), 1):
        yield from paragraphs.disclosed(found)
    yield from membership_sections.against(*map(cells.of, (disclosure.NAME, membership.NAME)))
    held = cells.of(privacy.NAME)
    if held:
        yield from paragraphs.priced(held)
    yield from training_sections.against(*map(cells.of, (uplift.NAME, samples.NAME)))
    yield from group_sections.unfound(cells.of(numbers.NAME))
    yield from group_sections.chanced(paragraphs.first(cells.of(clusters.NAME)))
    yield from training_sections.misplaced(cells.of(newcomers.NAME))
    yield from estimate_sections.against(*map(cells.of, (estimates.NAME, bounds.NAME)))
    yield from importance_sections.against(cells.of(importances.NAME))
    yield from real.claims(results(cells.folder))
    yield from lines.claims(lines_held(LINES, cells.folder))


_TOPICS: Final = (
    _Topic("limits", "What does not hold", "each claim that its figures contradict", _against),
    _Topic(
        "neighbours",
        "Neighbours",
        "how many of the most similar clients are found, by K and by epochs, beside cosines",
        studies=_NEIGHBOURS,
    ),
    _Topic(
        "donors", "Donors", "how donors are ranked, and what a start from one gives", None, _DONORS
    ),
    _Topic(
        "clusters",
        "Clusters",
        "accuracy and ARI of clusters, beside IFCA, CFL, FedBary, Per-FedAvg, one global model and "
        "training alone",
        _trained,
        _CLUSTERS,
    ),
    _Topic(
        "groups",
        "Groups",
        "groups of a free number, groups that differ by little, and newcomers",
        None,
        _GROUPS,
    ),
    _Topic(
        "privacy",
        "Privacy",
        "what a support gives away, blinded or not, membership, and what noise costs",
        None,
        _PRIVACY,
    ),
    _Topic(
        "supports",
        "Supports",
        "what they cost, whether an order helps, how importance is estimated, and bounds",
        None,
        _SUPPORTS,
    ),
    _Topic(
        "data",
        "Data that papers use",
        "what of the above holds on Fashion-MNIST, and which packages ship data sets",
        _published,
    ),
    _Topic("checkpoints", real.TITLE, "models that others trained and published", _real),
    _Topic("lines", lines.TITLE, "from which model each tensor of a derivative comes", _lines),
)
_GATES: Final = _Topic(
    "gates",
    "Gates and other data",
    "what was to be reproduced, and what is missed; data and networks of your own",
)
