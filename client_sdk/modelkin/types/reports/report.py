"""A report with its tables, its entry in a listing, and the policy that makes them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from modelkin._moments import Moment
from modelkin._printing import Printed, Table
from modelkin._terminal_text import minute_of
from modelkin.types.reports.findings import (
    ContradictedBase,
    CopyGroup,
    DeclaredLicense,
    LicenseFinding,
    ReportedModel,
    Saving,
    TakenApart,
    UndeclaredBase,
)

__all__ = ["Report", "ReportInfo", "ReportPolicy", "ReportSize"]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ReportSize(Printed):
    """The figures of a report: how many models and findings it is about.

    Attributes:
        fingerprints: models that have a fingerprint, whenever they came.
        models: those that the report is about: new, changed or measured again in its time.
        new: those of them that are new.
        contradicted: declared bases that the measurements speak against.
        declared: declared bases that were judged at all.
        undeclared: models with the weights of one that they do not name.
        copies: models that are copies of others; the first of each group is not counted.
        merges: models that were taken apart.
        licenses: declared licences that stand beside another one of a base.
        file_bytes: the bytes of the files of the models, as far as they are known.
        saved: the bytes that storing differences would save, estimated.
    """

    fingerprints: int = 0
    models: int = 0
    new: int = 0
    contradicted: int = 0
    declared: int = 0
    undeclared: int = 0
    copies: int = 0
    merges: int = 0
    licenses: int = 0
    file_bytes: int = 0
    saved: int = 0


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ReportInfo(Printed):
    """A stored report, without its tables.

    Attributes:
        id: that of the job that made it.
        since: the begin of its time; None for one about all models.
        until: the end of its time, when the data were read.
        size: its figures.
        made_by: ``"request"``, or ``"policy"`` for one that was made by itself.
    """

    _listed: ClassVar[tuple[str, ...]] = ("id", "since", "until", "made_by")
    id: str
    since: Moment | None = None
    until: Moment
    size: ReportSize
    made_by: str = "request"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Report(Printed):
    """What was found out about the models of a tenant in a time, beside what is declared.

    Attributes:
        id: that of the job that made it.
        owner: the name of the tenant.
        service: the version of the service that made it.
        since: the begin of its time; None for one about all models.
        until: the end of its time, when the data were read.
        size: its figures; they count the rows that a table is too long for, too.
        opening: what the report is about, in a sentence.
        headlines: the lines that matter, a sentence each.
        notes: what the report cannot say, or did not look at.
        contradicted: declared bases that the measurements speak against.
        undeclared: bases that were found and that nobody declared.
        copies: models with the same weights.
        merges: averages and assembled models, taken apart.
        license_findings: licences beside those of the measured bases.
        licenses: how many models declare which licence.
        savings: what storing differences would save, the greatest first.
        models: the models that the report is about, by name.
    """

    id: str
    owner: str
    service: str
    since: Moment | None = None
    until: Moment
    size: ReportSize
    opening: str
    headlines: tuple[str, ...]
    notes: tuple[str, ...] = ()
    contradicted: tuple[ContradictedBase, ...] = ()
    undeclared: tuple[UndeclaredBase, ...] = ()
    copies: tuple[CopyGroup, ...] = ()
    merges: tuple[TakenApart, ...] = ()
    license_findings: tuple[LicenseFinding, ...] = ()
    licenses: tuple[DeclaredLicense, ...] = ()
    savings: tuple[Saving, ...] = ()
    models: tuple[ReportedModel, ...] = field(default=(), repr=False)

    def _table(self) -> Table:
        since = "of all models" if self.since is None else f"since {minute_of(self.since)}"
        return Table(
            f"Report {since}, made {minute_of(self.until)}",
            notes=tuple(("", line) for line in (self.opening, *self.headlines)),
        )


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ReportPolicy(Printed):
    """The rule by which the service makes reports by itself.

    Attributes:
        every_seconds: the time from one report to the next, which is about what came between.
        keep: how many reports are kept; the oldest are deleted.
        last_at: when the last report was made by this policy; None before the first.
        next_at: when the next one is due.
    """

    every_seconds: int
    keep: int
    last_at: Moment | None = None
    next_at: Moment
