"""A report as one table in CSV, a finding or a model a row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import singledispatch
from typing import Final

from app.infra.spreadsheets import Row, spreadsheet_pieces
from app.kinship.reports.renderings.kept import ReportRow
from modelkin.types.reports import (
    ContradictedBase,
    CopyGroup,
    LicenseFinding,
    ReportedModel,
    Saving,
    TakenApart,
    UndeclaredBase,
)

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


def spreadsheet(rows: Iterable[ReportRow]) -> Iterator[bytes]:
    """The table of the rows of a report, in UTF-8."""
    return spreadsheet_pieces(COLUMNS, (row for found in rows for row in _told(found)))


@singledispatch
def _told(_: object) -> Iterator[Row]:
    """The rows of the table for one of a report; of how many models have which licence none."""
    return iter(())


@_told.register
def _of_contradicted(wrong: ContradictedBase) -> Iterator[Row]:
    yield {
        "finding": "contradicted_base",
        "model": wrong.model,
        "other": wrong.declared_base,
        "declared": True,
        "space": wrong.space,
        "log10_p": wrong.log10_p,
        "sentence": wrong.summary,
    }


@_told.register
def _of_undeclared(found: UndeclaredBase) -> Iterator[Row]:
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


@_told.register
def _of_copies(group: CopyGroup) -> Iterator[Row]:
    for copy in group.models[1:]:
        yield {
            "finding": "exact_copy" if group.is_exact else "copy",
            "model": copy,
            "other": group.models[0],
            "share": group.share,
        }


@_told.register
def _of_merge(merge: TakenApart) -> Iterator[Row]:
    for part, share in zip(merge.parts, merge.shares, strict=True):
        yield {
            "finding": merge.kind,
            "model": merge.model,
            "other": part,
            "share": share,
            "sentence": merge.sentence,
        }


@_told.register
def _of_license(found: LicenseFinding) -> Iterator[Row]:
    yield {
        "finding": f"license_{found.kind}",
        "model": found.model,
        "other": found.base,
        "declared": found.is_declared,
        "share": found.share,
        "license": found.license,
        "other_license": found.base_license,
    }


@_told.register
def _of_saving(saving: Saving) -> Iterator[Row]:
    yield {
        "finding": "saving",
        "model": saving.model,
        "other": saving.base,
        "share": saving.share,
        "bytes": saving.file_bytes,
        "saved": saving.saved,
    }


@_told.register
def _of_model(model: ReportedModel) -> Iterator[Row]:
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
