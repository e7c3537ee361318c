"""A report as one table in CSV (RFC 4180), a finding or a model a row.

A spreadsheet takes a cell that begins with ``=``, ``+``, ``-`` or ``@`` for a formula, and names
come from strangers. Such a text gets an apostrophe before it, as spreadsheets write texts.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import Final, TypeAlias

from modelkin._terminal_text import one_line
from modelkin.types.reports import Report

__all__ = ["COLUMNS", "spreadsheet"]

COLUMNS: Final = (
    "finding",
    "model",
    "other",
    "declared",
    "space",
    "share",
    "log10_p",
    "similarity",
    "license",
    "other_license",
    "bytes",
    "saved",
    "stored_at",
    "digest",
    "sentence",
)
_FORMULAS: Final = ("=", "+", "-", "@", "\t", "\r")
_BYTE_ORDER_MARK: Final = "\ufeff"
"""Without it, spreadsheets take UTF-8 for another encoding."""

Cell: TypeAlias = str | int | float | bool | None
Row: TypeAlias = dict[str, Cell]


def spreadsheet(report: Report) -> bytes:
    """The table of a report, in UTF-8."""
    lines = io.StringIO(newline="")
    writer = csv.DictWriter(lines, COLUMNS, restval="")
    writer.writeheader()
    writer.writerows({name: _cell(value) for name, value in row.items()} for row in _rows(report))
    return (_BYTE_ORDER_MARK + lines.getvalue()).encode()


def _cell(value: Cell) -> Cell:
    """A cell that no spreadsheet computes, on one line."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, str):
        return value
    text = one_line(value)
    return f"'{text}" if value.lstrip().startswith(_FORMULAS) or text.startswith("'") else text


def _rows(report: Report) -> Iterator[Row]:
    yield from _of_bases(report)
    yield from _of_kin(report)
    for found in report.license_findings:
        yield {
            "finding": f"license_{found.kind}",
            "model": found.model,
            "other": found.base,
            "declared": found.is_declared,
            "share": found.share,
            "license": found.license,
            "other_license": found.base_license,
        }
    for saving in report.savings:
        yield {
            "finding": "saving",
            "model": saving.model,
            "other": saving.base,
            "share": saving.share,
            "bytes": saving.file_bytes,
            "saved": saving.saved,
        }
    for model in report.models:
        yield {
            "finding": "new_model" if model.is_new else "changed_model",
            "model": model.model,
            "other": ", ".join(model.declared),
            "license": model.license,
            "bytes": model.file_bytes,
            "stored_at": model.stored_at.isoformat(),
            "digest": model.digest,
            "sentence": "; ".join(model.sentences),
        }


def _of_bases(report: Report) -> Iterator[Row]:
    for wrong in report.contradicted:
        yield {
            "finding": "contradicted_base",
            "model": wrong.model,
            "other": wrong.declared_base,
            "declared": True,
            "space": wrong.space,
            "sentence": wrong.summary,
        }
    for found in report.undeclared:
        yield {
            "finding": "undeclared_base",
            "model": found.model,
            "other": found.base,
            "declared": False,
            "space": found.space,
            "share": found.share,
            "log10_p": found.log10_p,
            "similarity": found.similarity,
            "sentence": found.sentence,
        }


def _of_kin(report: Report) -> Iterator[Row]:
    for group in report.copies:
        for copy in group.models[1:]:
            yield {
                "finding": "exact_copy" if group.is_exact else "copy",
                "model": copy,
                "other": group.models[0],
                "share": group.share,
            }
    for merge in report.merges:
        for part, share in zip(merge.parts, merge.shares, strict=True):
            yield {
                "finding": merge.kind,
                "model": merge.model,
                "other": part,
                "share": share,
                "sentence": merge.sentence,
            }
