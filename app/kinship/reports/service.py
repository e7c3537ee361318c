"""``ReportService``: makes, lists and reads the reports of tenants. Jobs make them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final, Literal, TypeAlias

from app.infra.db.database import Database, Reader, Writer
from app.infra.errors import ReportNotFound
from app.jobs.records import JobRecord
from app.jobs.service import CommitHook, JobService, Progress
from app.kinship.reports.collecting import EvidenceCollector
from app.kinship.reports.composing import compose
from app.kinship.reports.events import report_ready
from app.kinship.reports.known import Period
from app.kinship.reports.records import Document, MadeBy, ReportRecord
from app.kinship.reports.renderings.bill_of_materials import bill_of_materials
from app.kinship.reports.renderings.kept import json_pieces
from app.kinship.reports.repositories import policies, reports
from app.tenancy.auth.records import Tenant
from app.webhooks.outbox import Outbox
from modelkin.errors import InvalidParameter, MissingExtra
from modelkin.types.paging import Page
from modelkin.types.reports import Report

__all__ = ["DEFAULT_KEPT", "JOB_KIND", "LATEST", "ReportService", "Since"]

JOB_KIND: Final = "report"
"""The kind of the jobs that make reports."""
LATEST: Final = "latest"
"""What names the newest report in place of its id."""
DEFAULT_KEPT: Final = 100
"""Reports that are kept of a tenant without a policy; the oldest are deleted."""

Since: TypeAlias = datetime | Literal["last"] | None
"""The begin of a report's time: a moment, the last report, or None for all models."""


class ReportService:
    """The use cases of reports.

    Args:
        database: the database to read from.
        jobs: the service that enqueues their making.
        collector: reads what they are made from.
        outbox: gets an event for each.
        now: returns the present moment, in UTC.
    """

    def __init__(
        self,
        database: Database,
        jobs: JobService,
        collector: EvidenceCollector,
        outbox: Outbox,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._database = database
        self._jobs = jobs
        self._collector = collector
        self._outbox = outbox
        self._now = now

    def create(
        self, session: Writer, tenant: Tenant, since: Since, made_by: MadeBy = "request"
    ) -> JobRecord:
        """The job that will make a report; a pending job of the same request is returned.

        Raises:
            InvalidParameter: its time begins in the future.
            QueueFull: too many jobs of the tenant wait.
        """
        if isinstance(since, datetime) and since > self._now():
            raise InvalidParameter(
                "since is in the future: a report is about what has come", field="since"
            )
        told = since.isoformat() if isinstance(since, datetime) else since
        parameters = {"since": told, "made_by": made_by}
        key = f"{made_by} since {told}"
        return self._jobs.enqueue(session, tenant, JOB_KIND, parameters, dedup_key=key)

    def list(
        self, session: Reader, tenant: Tenant, *, limit: int, cursor: str | None
    ) -> Page[ReportRecord]:
        """The tenant's reports, newest first."""
        return reports.list_reports(session, tenant, limit=limit, cursor=cursor)

    def get(self, session: Reader, tenant: Tenant, report_id: str) -> ReportRecord:
        """The report of an id, or the newest one for :data:`LATEST`.

        Raises:
            ReportNotFound: there is no such report.
        """
        if report_id != LATEST:
            return reports.get_report(session, tenant, report_id)
        found = reports.find_newest(session, tenant)
        if found is None:
            raise ReportNotFound("no report was made yet: request one with POST /v1/reports")
        return found

    def packed_bytes(self, session: Reader, report: ReportRecord) -> int:
        """The bytes that the longest form of a report takes as it is kept."""
        return reports.packed_bytes(session, report)

    def content(self, session: Reader, report: ReportRecord) -> Document:
        """The JSON of a report; :class:`ReportNotFound` if it was deleted meanwhile."""
        return reports.content(session, report)

    def bill(self, session: Reader, report: ReportRecord) -> Document | None:
        """The bill of materials of a report; None where its library was not installed."""
        return reports.bill(session, report)

    def delete(self, session: Writer, tenant: Tenant, report_id: str) -> None:
        """Delete a report; :class:`ReportNotFound` if there is none of this id."""
        reports.delete_report(session, reports.get_report(session, tenant, report_id))

    def execute(self, job: JobRecord, progress: Progress) -> CommitHook:
        """Make the report of a job."""
        tenant, made_by = job.tenant, job.parameters["made_by"]
        with self._database.reading() as session:
            since = self._since(session, tenant, job.parameters["since"], made_by)
        evidence = self._collector.collect(tenant, Period(since, self._now()), progress)
        progress(0, 0, "writing")
        report = compose(job.id, evidence)
        content, bill = Document.of(json_pieces(report)), _bill(report, progress)
        record = ReportRecord(
            id=report.id,
            tenant_id=tenant.id,
            since=report.since,
            until=report.until,
            size=report.size,
            made_by=made_by,
            content_bytes=content.size,
            bill_bytes=0 if bill is None else bill.size,
        )

        def finish(session: Writer) -> Mapping[str, Any]:
            policy = policies.find_policy(session, tenant)
            reports.insert_report(session, record, content, bill)
            reports.prune(session, tenant, DEFAULT_KEPT if policy is None else policy.keep)
            report_ready(self._outbox, session, tenant, record)
            models, url = record.size.models, f"/v1/reports/{record.id}"
            return {"report": record.id, "url": url, "models": models}

        return finish

    def _since(
        self, session: Reader, tenant: Tenant, told: str | None, made_by: MadeBy
    ) -> datetime | None:
        """The begin of a report's time; of the first one None.

        One of a policy is about what came since the last one of a policy, whatever was requested
        in between.
        """
        if told is None:
            return None
        if told != "last":
            return datetime.fromisoformat(told)
        last = reports.find_newest(session, tenant, "policy" if made_by == "policy" else None)
        return None if last is None else last.until


def _bill(report: Report, progress: Progress) -> Document | None:
    """The bill of materials, which takes longest; None where its library is not installed."""
    try:
        pieces = bill_of_materials(report)
    except MissingExtra:
        return None

    def told() -> Iterator[bytes]:
        for piece in pieces:
            progress(0, 0, "writing the bill of materials")
            yield piece

    return Document.of(told())
