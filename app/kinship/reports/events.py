"""The event that a report is ready, as it is written into the outbox."""

from __future__ import annotations

from dataclasses import asdict

from app.infra.db.database import Writer
from app.kinship.reports.records import ReportRecord
from app.tenancy.auth.records import Tenant
from app.webhooks.outbox import REPORT_READY, Outbox

__all__ = ["report_ready"]


def report_ready(outbox: Outbox, session: Writer, tenant: Tenant, report: ReportRecord) -> None:
    """Write that a report is ready, with its figures."""
    payload = {
        "report": report.id,
        "since": None if report.since is None else report.since.isoformat(),
        "until": report.until.isoformat(),
        "made_by": report.made_by,
        **asdict(report.size),
        "url": f"/v1/reports/{report.id}",
    }
    outbox.add_of_tenant(session, tenant, REPORT_READY, [(None, payload)])
