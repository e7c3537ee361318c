"""Figures as Markdown: each beside its peer, its target, and whether it is met.

A section names the processor and the versions, but neither a machine nor a path. Its lines have at
most 120 characters: a longer row of a table continues in rows with empty cells.
"""

from __future__ import annotations

import os
import platform
import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from itertools import groupby, zip_longest
from pathlib import Path

from benchmarks.harness import Spread
from docs.line_length import MAX_LINE_LENGTH

__all__ = [
    "Findings",
    "Row",
    "Table",
    "at_least",
    "at_most",
    "duration",
    "grouped",
    "machine",
    "markdown",
    "table_lines",
    "range_of",
    "replaced",
    "version",
]


@dataclass(frozen=True, slots=True)
class Row:
    """One figure, its peer's and its target.

    Attributes:
        figure: what was measured, and on what.
        ours: modelkin's value.
        peer: the alternative's name and value.
        ratio: of the two, with its spread.
        target: what it should be; empty without one.
        met: whether the target is met; None without one.
    """

    figure: str
    ours: str
    peer: str
    ratio: str
    target: str = ""
    met: bool | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """Plain facts; the first column names what the others measure."""

    title: str
    columns: list[str]
    rows: list[list[str]]


@dataclass(frozen=True, slots=True)
class Findings:
    """The figures of a subject."""

    rows: list[Row]
    tables: list[Table] = field(default_factory=list)


def at_least(figure: str, ours: str, peer: str, ratio: Spread, target: float) -> Row:
    """A ratio whose median should be the target or larger."""
    met = ratio.median >= target
    return Row(figure, ours, peer, range_of(ratio), f"≥ {target:g}×", met)


def at_most(figure: str, ours: str, peer: str, ratio: Spread, target: float) -> Row:
    """A ratio whose median should be the target or smaller."""
    met = ratio.median <= target
    return Row(figure, ours, peer, range_of(ratio), f"≤ {target:g}×", met)


def range_of(ratio: Spread) -> str:
    """``56× (52–60)``: the median, the least and the most of the rounds."""
    return f"{_short(ratio.median)}× ({_short(ratio.least)}–{_short(ratio.most)})"


def duration(seconds: float) -> str:
    """Three digits and the unit that suits them."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def _short(ratio: float) -> str:
    return f"{ratio:,.0f}" if ratio >= 100 else f"{ratio:.3g}"


def version(distribution: str) -> str:
    """``numpy 2.4.6``, or ``no numpy`` if it is not installed."""
    try:
        return f"{distribution} {metadata.version(distribution)}"
    except metadata.PackageNotFoundError:
        return f"no {distribution}"


def machine(distributions: Sequence[str] = ()) -> str:
    """Processor, cores and the versions that a figure depends on, in one line."""
    versions = ", ".join(version(name) for name in distributions)
    python = f"Python {platform.python_version()}"
    return f"{_processor()}, {os.cpu_count()} cores, {python}" + (f", {versions}" * bool(versions))


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    facts = {name.strip(): value.strip() for name, _, value in (x.partition(":") for x in lines)}
    flags = facts.get("flags", "").split()
    widest = [name for flag, name in (("avx512f", "AVX-512"), ("avx2", "AVX2")) if flag in flags]
    return " with ".join([facts.get("model name", platform.machine()), *widest[:1]])


def markdown(findings: Findings, measured_on: str) -> str:
    """A subject's section: the judged figures, the plain tables, the machine."""
    judged = grouped(
        [row.figure, row.ours, row.peer, row.ratio, row.target, _verdict(row.met)]
        for row in findings.rows
    )
    columns = ["figure", "modelkin", "beside it", "ratio", "target", "met"]
    blocks = [_table(columns, judged)] if judged else []
    for table in findings.tables:
        blocks += [_wrapped(f"{table.title}:"), _table(table.columns, table.rows)]
    return "\n\n".join([*blocks, _wrapped(f"Measured on {measured_on}.")]) + "\n"


def _wrapped(text: str) -> str:
    return textwrap.fill(text, MAX_LINE_LENGTH, break_long_words=False, break_on_hyphens=False)


def _verdict(met: bool | None) -> str:
    return "" if met is None else "yes" if met else "**no**"


def grouped(rows: Iterable[list[str]]) -> list[list[str]]:
    """Rows of one subject under a row with its name, where a figure reads ``subject: figure``."""
    found: list[list[str]] = []
    for subject, group in groupby(rows, key=lambda row: row[0].partition(": ")[0]):
        members = list(group)
        if len(members) == 1:
            found += members
        else:
            found.append([f"**{subject}**"] + [""] * (len(members[0]) - 1))
            found += [[row[0].removeprefix(f"{subject}: "), *row[1:]] for row in members]
    return found


def _table(columns: list[str], rows: list[list[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(line for cells in lines for line in table_lines(cells))


def table_lines(cells: list[str]) -> list[str]:
    """One row of a table; one that is too long continues in rows with empty cells."""
    widths = [len(cell) for cell in cells]
    room = MAX_LINE_LENGTH - len(f"| {' | '.join([''] * len(cells))} |")
    while sum(widths) > room:
        widths[widths.index(max(widths))] -= 1
    parts = [
        textwrap.wrap(cell, width, break_long_words=False, break_on_hyphens=False) if cell else []
        for cell, width in zip(cells, widths, strict=True)
    ]
    lines = zip_longest(*parts, fillvalue="") if any(parts) else [cells]
    return [f"| {' | '.join(line)} |" for line in lines]


def replaced(page: str, subject: str, section: str) -> str:
    """The page with the section between a subject's markers exchanged.

    Raises:
        ValueError: the page has no such markers.
    """
    begin, end = f"<!-- {subject}: begin, by `make bench` -->\n", f"<!-- {subject}: end -->"
    pattern = re.compile(f"({re.escape(begin)}).*?({re.escape(end)})", re.DOTALL)
    if not pattern.search(page):
        raise ValueError(
            f"the page has no place for {subject}: add the lines {begin.strip()!r} and {end!r}"
        )
    return pattern.sub(lambda found: f"{found[1]}\n{section}\n{found[2]}", page)
