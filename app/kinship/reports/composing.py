"""``compose``: makes a report of its evidence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Final

from app.kinship.reports import tables, wording
from app.kinship.reports.evidence import Evidence
from modelkin._version import __version__
from modelkin.types.reports import Report, ReportSize

__all__ = ["MAX_ROWS", "compose"]

MAX_ROWS: Final = 100_000
"""Rows of each table that a report keeps; its figures count all."""


def compose(report_id: str, evidence: Evidence, most: int = MAX_ROWS) -> Report:
    """The report of this evidence.

    Args:
        report_id: that of the job that makes it.
        most: the most rows of each table.
    """
    undeclared = list(tables.undeclared_bases(evidence))
    copies = list(tables.copies(evidence))
    licenses = list(tables.license_findings(evidence))
    savings = list(tables.savings(evidence, copies))
    contradicted = sorted(evidence.contradicted, key=lambda each: (each.model, each.space or ""))
    merges = sorted(evidence.merges, key=lambda each: each.model)
    reported = [model for model in evidence.models.values() if model.is_reported]
    size = ReportSize(
        fingerprints=evidence.fingerprints,
        models=len(reported),
        new=sum(model.is_new for model in reported),
        contradicted=len(contradicted),
        declared=evidence.judged,
        undeclared=len(undeclared),
        copies=sum(len(each.models) - 1 for each in copies),
        merges=len(merges),
        licenses=len(licenses),
        file_bytes=sum(model.file_bytes or 0 for model in reported),
        saved=sum(each.saved for each in savings),
    )
    rows = {
        "contradicted declarations": len(contradicted),
        "undeclared bases": len(undeclared),
        "licences beside those of bases": len(licenses),
        "copies": len(copies),
        "merges": len(merges),
        "savings": len(savings),
        "models": len(reported),
    }
    return Report(
        id=report_id,
        owner=evidence.owner,
        service=__version__,
        since=evidence.period.since,
        until=evidence.period.until,
        size=size,
        opening=wording.opening(evidence, size),
        headlines=wording.headlines(
            evidence, size, contradicted, undeclared, licenses, copies, merges
        ),
        notes=(
            *wording.notes(evidence),
            *wording.undated(tables.count_undated(evidence)),
            *_cut(rows, most),
        ),
        contradicted=tuple(contradicted[:most]),
        undeclared=tuple(undeclared[:most]),
        copies=tuple(copies[:most]),
        merges=tuple(merges[:most]),
        license_findings=tuple(licenses[:most]),
        licenses=tuple(islice(tables.declared_licenses(evidence), most)),
        savings=tuple(savings[:most]),
        models=tuple(islice(tables.reported_models(evidence), most)),
    )


def _cut(rows: Mapping[str, int], most: int) -> Iterator[str]:
    """What is left out of tables, a sentence each."""
    for name, count in rows.items():
        if count > most:
            yield (
                f"The table of {name} holds {most:,} of {count:,} rows, which is the most; the "
                f"figures above count all. A report of a shorter time holds what came in it."
            )
