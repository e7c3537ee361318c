"""A report as its own JSON, a row of a table a line: so it is read without holding all of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from typing import Any, Final, TypeAlias

from pydantic import TypeAdapter
from pydantic_core import from_json, to_json

from modelkin.types.reports import (
    ContradictedBase,
    CopyGroup,
    DeclaredLicense,
    LicenseFinding,
    Report,
    ReportedModel,
    Saving,
    TakenApart,
    UndeclaredBase,
)

__all__ = ["ReportRow", "beginning", "json_pieces", "rows_in"]

ReportRow: TypeAlias = (
    ContradictedBase
    | UndeclaredBase
    | CopyGroup
    | TakenApart
    | LicenseFinding
    | DeclaredLicense
    | Saving
    | ReportedModel
)
"""A row of any table."""

_ROWS: Final[Mapping[str, TypeAdapter[Any]]] = {
    "contradicted": TypeAdapter(ContradictedBase),
    "undeclared": TypeAdapter(UndeclaredBase),
    "copies": TypeAdapter(CopyGroup),
    "merges": TypeAdapter(TakenApart),
    "license_findings": TypeAdapter(LicenseFinding),
    "licenses": TypeAdapter(DeclaredLicense),
    "savings": TypeAdapter(Saving),
    "models": TypeAdapter(ReportedModel),
}
"""The rows of each table, in the order of the text."""
_WHOLE: Final = TypeAdapter(Report)


def json_pieces(report: Report) -> Iterator[bytes]:
    """The JSON of a report: a line for what is no table, and one for each row of a table."""
    head = {each.name: getattr(report, each.name) for each in fields(report)}
    yield to_json({name: value for name, value in head.items() if name not in _ROWS})[:-1]
    for name in _ROWS:
        yield b',\n"%b":[' % name.encode()
        for place, row in enumerate(head[name]):
            yield (b",\n" if place else b"\n") + to_json(row)
        yield b"\n]"
    yield b"}\n"


def rows_in(lines: Iterable[bytes]) -> Iterator[ReportRow]:
    """The rows of all tables, in the lines of the JSON of a report."""
    for name, line in _lines_of_rows(iter(lines)):
        yield _ROWS[name].validate_json(line)


def beginning(lines: Iterable[bytes], most: int) -> tuple[Report, dict[str, int]]:
    """A report with the first rows of each table, and how many rows each has.

    Args:
        lines: of its JSON.
        most: the rows of each table that are read.
    """
    left = iter(lines)
    head = from_json(next(left).removesuffix(b",") + b"}")
    counts, first = dict.fromkeys(_ROWS, 0), {name: list[bytes]() for name in _ROWS}
    for name, line in _lines_of_rows(left):
        counts[name] += 1
        if counts[name] <= most:
            first[name].append(line)
    parts = [b'"%b":[%b]' % (name.encode(), b",".join(rows)) for name, rows in first.items()]
    return _WHOLE.validate_json(to_json(head)[:-1] + b"," + b",".join(parts) + b"}"), counts


def _lines_of_rows(lines: Iterator[bytes]) -> Iterator[tuple[str, bytes]]:
    """The JSON of each row: they stand between a line with the name of their table and ``]``."""
    name = ""
    for line in lines:
        if line.startswith(b'"') and line.endswith(b":["):
            name = line[1:-3].decode()
        elif name and line.startswith(b"{"):
            yield name, line.removesuffix(b",")
