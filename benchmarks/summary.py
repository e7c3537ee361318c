"""The summary of the benchmarks, made of the sections: figures that decide, and targets met.

Both stand between markers, as the sections do. So no figure of the summary is older than its table.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.report import replaced
from docs.line_length import MAX_LINE_LENGTH

__all__ = [
    "DECIDING",
    "FOLDER",
    "PAGE",
    "PAGES",
    "Deciding",
    "Section",
    "sections",
    "write",
    "written",
]

PAGE: Final = Path(__file__).parents[1] / "docs" / "benchmarks.md"
FOLDER: Final = PAGE.with_suffix("")
"""The folder of the pages that have the sections."""
PAGES: Final = tuple(
    FOLDER / f"{name}.md"
    for name in (
        "supports",
        "search",
        "kinship",
        "provenance",
        "service",
        "sharing",
        "subspaces",
        "learngenes",
        "federation",
    )
)
"""The pages that have the sections, in the order of the summary."""

_HEADING: Final = re.compile(r"^## (.+)$", re.MULTILINE)
_SECTION: Final = re.compile(
    r"<!-- ([\w-]+): begin, by `make bench` -->\n(.*?)<!-- \1: end -->", re.DOTALL
)
_JUDGED: Final = "| figure | modelkin | beside it | ratio | target | met |"
_MET: Final = {"yes": "met", "**no**": "**missed**", "": ""}


@dataclass(frozen=True, slots=True)
class Deciding:
    """A figure that decides whether modelkin suits.

    Attributes:
        subject: whose table has it.
        row: its name there, behind that of the last group above it.
        words: what was measured, after the value.
        meaning: what follows for a reader.
    """

    subject: str
    row: str
    words: str
    meaning: str


DECIDING: Final = (
    Deciding(
        "selection",
        "top K, M = 110,000,000, K = 9.6%: time",
        "to select a tenth of 1.1e8 importances on one core",
        "A client computes this once for each upload.",
    ),
    Deciding(
        "wire",
        "bits an index, uniform, 9.6%: bits an index, uniform, 9.6%",
        "bits for each index of a support",
        "Times K, it is what a client sends and what the service keeps.",
    ),
    Deciding(
        "retrieval",
        "n = 1,000,000, dense: recall@10",
        "of the ten nearest found among a million models, in the hardest of four backgrounds",
        "An answer may miss distant kin; near ones are found.",
    ),
    Deciding(
        "scale",
        "n = 10,000,000: p50 of a query",
        "for a query among ten million models, without HTTP",
        "It grows with the number of models.",
    ),
    Deciding(
        "scale",
        "n = 10,000,000: bytes of memory a model",
        "bytes of memory for each model",
        "Times your models, it is the memory of the index.",
    ),
    Deciding(
        "crowd",
        "n = 100,000, M = 100,032, K = 9.5%, 2 processes: queries a second, 8 connections, the "
        "client on the same cores",
        "queries a second over HTTP among 100,000 models, on two cores",
        "Compare it with the queries that you expect.",
    ),
    Deciding(
        "writes",
        "K = 9,426, M = 100,032, 2 processes: put_many, supports a second",
        "supports a second stored durably by `put_many`",
        "It says how long a hub takes to fill.",
    ),
    Deciding(
        "clusterings",
        "100,000 models, M = 20,000: leiden, signatures alone",
        "to cluster 100,000 models",
        "Clustering is a job of minutes, not a request.",
    ),
    Deciding(
        "startup",
        "service: ready on 1,000,000 models, and a query answered",
        "from a start to the first answer among a million models",
        "Plan a restart by it.",
    ),
    Deciding(
        "eris-flower",
        "n = 10, M = 1,000,000: shards, concealed, time of a round",
        "for a round of concealed averages in Flower, all parties one after another",
        "It is the price of hiding an update, beside the secure aggregation that Flower has.",
    ),
)


@dataclass(frozen=True, slots=True)
class Section:
    """A subject's place on a page.

    Attributes:
        page: its file.
        heading: the heading that it stands below.
        text: its tables.
    """

    page: Path
    heading: str
    text: str

    @property
    def link(self) -> str:
        """Its address, from the summary."""
        anchor = re.sub(r"[^\w\- ]", "", self.heading.lower()).replace(" ", "-")
        return f"{FOLDER.name}/{self.page.name}#{anchor}"

    @property
    def verdicts(self) -> list[str]:
        """Each ``yes`` and ``**no**`` of its figures."""
        return re.findall(r"\| (yes|\*\*no\*\*) \|$", self.text, re.MULTILINE)

    def row(self, name: str) -> list[str]:
        """The five cells behind a figure's name.

        Raises:
            ValueError: the section has no such figure.
        """
        for found, cells in _rows(self.text):
            if found == name:
                return cells
        raise ValueError(f"{self.heading} has no figure {name!r}: the summary needs another")


def sections() -> dict[str, Section]:
    """All sections by their subjects, in the order of pages."""
    found: dict[str, Section] = {}
    for page in PAGES:
        text = page.read_text()
        for place in _SECTION.finditer(text):
            heading = _HEADING.findall(text, 0, place.start())[-1]
            found[place[1]] = Section(page, heading, place[2])
    return found


def write(made: Mapping[str, str]) -> None:
    """Put tables of subjects in their places, and make the summary of all that there are.

    Raises:
        ValueError: a subject has no place on any page.
    """
    for subject, text in made.items():
        held = sections().get(subject)
        if held is None:
            raise ValueError(
                f"no page of docs/{FOLDER.name} has a place for {subject}: add its markers"
            )
        held.page.write_text(replaced(held.page.read_text(), subject, text))
    PAGE.write_text(written())


def written() -> str:
    """The page with what its markers enclose made anew."""
    found = sections()
    page = replaced(PAGE.read_text(), "deciding", "\n".join(_deciding(found)) + "\n")
    return replaced(page, "targets", "\n".join(_targets(found)) + "\n")


def _deciding(found: dict[str, Section]) -> Iterator[str]:
    for number, each in enumerate(DECIDING, 1):
        section = found[each.subject]
        ours, peer, ratio, target, met = section.row(each.row)
        value, _, more = ours.partition("; ")
        facts = [more] if more else []
        if peer and peer != "target":
            facts.append(f"{peer}, {ratio}" if ratio else peer)
        if target:
            facts.append(f"target {target}, {_MET[met]}")
        beside = f" ({'; '.join(facts)})" if facts else ""
        command = " ".join(each.subject.split("-", 1))
        yield _item(
            f"{number}. ",
            f"**{value}** {each.words}{beside}. {each.meaning} [Table]({section.link}), "
            f"`python -m benchmarks {command}`.",
        )


def _targets(found: dict[str, Section]) -> Iterator[str]:
    for page in PAGES:
        verdicts: dict[str, list[str]] = {}
        for section in found.values():
            if section.page == page:
                verdicts.setdefault(section.link, []).extend(section.verdicts)
        if verdicts:
            names = {section.link: section.heading for section in found.values()}
            counted = (f"[{names[link]}]({link}){_count(met)}" for link, met in verdicts.items())
            title = page.read_text().partition("\n")[0].removeprefix("# ")
            about = f"[{title}]({FOLDER.name}/{page.name})"
            yield _item("- ", f"**{about}**: {', '.join(counted)}.")


def _count(verdicts: list[str]) -> str:
    if not verdicts:
        return ""
    met = verdicts.count("yes")
    counted = f"{met} of {len(verdicts)}"
    return f" {counted}" if met == len(verdicts) else f" **{counted}**"


def _item(mark: str, text: str) -> str:
    return textwrap.fill(
        mark + text,
        MAX_LINE_LENGTH,
        subsequent_indent=" " * len(mark),
        break_long_words=False,
        break_on_hyphens=False,
    )


def _rows(text: str) -> Iterator[tuple[str, list[str]]]:
    """The judged figures: names behind that of the last group, and cells in one line again."""
    table = text.partition(_JUDGED)[2].partition("\n\n")[0]
    lines = [[*map(str.strip, line.strip("|").split("|"))] for line in table.split("\n")[2:]]
    group, joined = "", list[list[str]]()
    for name, *cells in lines:
        if name.startswith("**") and not any(cells):
            group = f"{name.strip('*')}: "
        elif cells[0]:  # each figure has a value, and a line that goes on has none
            joined.append([group + name, *cells])
        else:
            joined[-1] = [
                " ".join(filter(None, pair))
                for pair in zip(joined[-1], [name, *cells], strict=True)
            ]
    for name, *cells in joined:
        yield name, cells
