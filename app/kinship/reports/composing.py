"""``compose``: makes a report of its evidence."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Final, TypeVar

from app.kinship.reports import tables, wording
from app.kinship.reports.evidence import Evidence
from app.kinship.reports.families import Families
from modelkin._version import __version__
from modelkin.types.reports import Report, ReportSize

__all__ = ["MAX_ROWS", "compose"]

MAX_ROWS: Final = 20_000
"""Rows of each table that a report keeps; its figures count all."""

Row = TypeVar("Row")


def compose(report_id: str, evidence: Evidence, most: int = MAX_ROWS) -> Report:
    """The report of this evidence.

    Args:
        report_id: that of the job that makes it.
        most: the most rows of each table.
    """
    families = Families(evidence)
    models = list(tables.reported_models(evidence))
    undeclared = list(tables.undeclared_bases(evidence, families))
    copies = list(tables.copies(evidence))
    licenses = list(tables.license_findings(evidence, families))
    savings = list(tables.savings(evidence, families, copies))
    contradicted = sorted(evidence.contradicted, key=lambda each: (each.model, each.space or ""))
    merges = sorted(evidence.merges, key=lambda each: each.model)
    size = ReportSize(
        fingerprints=evidence.fingerprints,
        models=len(models),
        new=sum(model.is_new for model in models),
        contradicted=len(contradicted),
        declared=evidence.judged,
        undeclared=len(undeclared),
        copies=sum(len(each.models) - 1 for each in copies),
        merges=len(merges),
        licenses=len(licenses),
        file_bytes=sum(model.file_bytes or 0 for model in models),
        saved=sum(each.saved for each in savings),
    )
    all_rows = (models, undeclared, copies, licenses, savings, contradicted, merges)
    cut = (_CUT.format(most),) if any(len(each) > most for each in all_rows) else ()
    return Report(
        id=report_id,
        owner=evidence.owner,
        service=__version__,
        since=evidence.period.since,
        until=evidence.period.until,
        size=size,
        opening=wording.opening(evidence, size),
        headlines=wording.headlines(size, contradicted, undeclared, licenses, copies, merges),
        notes=(*wording.notes(evidence), *cut),
        contradicted=_few(contradicted, most),
        undeclared=_few(undeclared, most),
        copies=_few(copies, most),
        merges=_few(merges, most),
        license_findings=_few(licenses, most),
        licenses=_few(tables.declared_licenses(evidence), most),
        savings=_few(savings, most),
        models=_few(models, most),
    )


_CUT: Final = (
    "A table holds {:,} rows at most; the figures above count all. Reports over shorter times hold "
    "the rest."
)


def _few(rows: Iterable[Row], most: int) -> tuple[Row, ...]:
    return tuple(islice(rows, most))
