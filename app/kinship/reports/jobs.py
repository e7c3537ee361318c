"""The jobs of reports."""

from __future__ import annotations

from app.jobs.service import JobService
from app.kinship.reports import policies
from app.kinship.reports.policies import ReportPolicies
from app.kinship.reports.service import JOB_KIND, ReportService

__all__ = ["register_jobs"]


def register_jobs(jobs: JobService, reports: ReportService, due: ReportPolicies) -> None:
    """Register the making of a report, and the policies by which it is made again."""
    jobs.register(JOB_KIND, reports.execute)
    jobs.run_every(policies.CHECK_INTERVAL, policies.NAME, due.make_due)
