"""Report policies: how often the reports of a tenant are made by themselves, and how many are kept.

A periodic task of the workers enqueues the jobs that are due. A policy has one job at a time: while
one is unfinished, the next waits for it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final

from app.infra.db.database import Database, Reader, Writer
from app.infra.errors import QueueFull, ReportNotFound
from app.jobs.records import JobRecord
from app.kinship.reports.records import ReportPolicyRecord
from app.kinship.reports.repositories import policies, reports
from app.kinship.reports.service import ReportService
from app.tenancy.auth.records import Tenant

__all__ = ["CHECK_INTERVAL", "NAME", "ReportPolicies"]

NAME: Final = "report_policies"
"""The name of the periodic task that makes reports."""
CHECK_INTERVAL: Final = timedelta(seconds=30)

log = logging.getLogger(__name__)


class ReportPolicies:
    """The use cases of report policies.

    Args:
        database: the database, which is the truth.
        service: enqueues the reports.
        now: returns the present moment, in UTC.
    """

    def __init__(
        self,
        database: Database,
        service: ReportService,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._database = database
        self._service = service
        self._now = now

    def get(self, session: Reader, tenant: Tenant) -> ReportPolicyRecord:
        """The policy of a tenant, or :class:`ReportNotFound`."""
        policy = policies.find_policy(session, tenant)
        if policy is None:
            raise ReportNotFound("no report policy is set: reports are made by request alone")
        return policy

    def put(
        self, session: Writer, tenant: Tenant, *, every_seconds: int, keep: int
    ) -> ReportPolicyRecord:
        """Set the policy of a tenant. The first report is due at once, and is about all models.

        The same policy again changes nothing, and another time moves the next report.
        """
        current = policies.lock_policy(session, tenant)
        last = None if current is None else current.last_at
        now = self._now()
        due = now if last is None else max(last + timedelta(seconds=every_seconds), now)
        if current is not None and current.every_seconds == every_seconds:
            due = current.next_at
        policy = ReportPolicyRecord(tenant.id, every_seconds, keep, last, due)
        policies.put_policy(session, policy)
        reports.prune(session, tenant, keep)
        return policy

    def delete(self, session: Writer, tenant: Tenant) -> None:
        """Delete the policy of a tenant; its reports stay. :class:`ReportNotFound` without one."""
        if not policies.delete_policy(session, tenant):
            raise ReportNotFound("no report policy is set: there is nothing to delete")

    def make_due(self) -> list[JobRecord]:
        """Enqueue the reports that are due, of all tenants; return their jobs."""
        with self._database.reading() as session:
            tenants = policies.due_tenants(session, self._now())
        made = []
        for tenant in tenants:
            with self._database.writing() as session:
                job = self._make(session, tenant)
            if job is not None:
                made.append(job)
        return made

    def _make(self, session: Writer, tenant: Tenant) -> JobRecord | None:
        policy = policies.lock_policy(session, tenant)
        now = self._now()
        if policy is None or policy.next_at > now:  # another worker was here
            return None
        try:
            job = self._service.create(session, tenant, "last", "policy")
        except QueueFull as error:  # raised before anything is written
            log.info("the report of tenant %d waits: %s", tenant.id, error)
            return None
        following = now + timedelta(seconds=policy.every_seconds)
        policies.put_policy(session, replace(policy, last_at=now, next_at=following))
        return job
