"""Queries for the policies by which reports are made."""

from __future__ import annotations

from datetime import datetime
from typing import cast

from sqlalchemy import CursorResult, delete, select

from app.infra.db.database import Reader, Writer
from app.infra.db.tables.reports import ReportPolicyRow
from app.infra.db.tables.tenants import TenantRow
from app.kinship.reports.records import ReportPolicyRecord
from app.tenancy.auth.records import Tenant

__all__ = ["delete_policy", "due_tenants", "find_policy", "lock_policy", "put_policy"]

_COLUMNS = tuple(ReportPolicyRecord.__dataclass_fields__)


def find_policy(session: Reader, tenant: Tenant) -> ReportPolicyRecord | None:
    """The policy of a tenant, or None."""
    row = session.get(ReportPolicyRow, tenant.id, populate_existing=True)
    return None if row is None else _record(row)


def due_tenants(session: Reader, now: datetime) -> list[Tenant]:
    """The tenants whose next report is due."""
    query = (
        select(TenantRow.id, TenantRow.name)
        .join(ReportPolicyRow, ReportPolicyRow.tenant_id == TenantRow.id)
        .where(ReportPolicyRow.next_at <= now)
        .order_by(ReportPolicyRow.next_at)
    )
    return [Tenant(id=row.id, name=row.name) for row in session.execute(query)]


def lock_policy(session: Writer, tenant: Tenant) -> ReportPolicyRecord | None:
    """The policy of a tenant, locked until the transaction ends; or None."""
    row = session.scalar(
        select(ReportPolicyRow)
        .where(ReportPolicyRow.tenant_id == tenant.id)
        .with_for_update()
        .execution_options(populate_existing=True)
    )
    return None if row is None else _record(row)


def put_policy(session: Writer, policy: ReportPolicyRecord) -> None:
    """Set the policy of its tenant."""
    session.merge(ReportPolicyRow(**{name: getattr(policy, name) for name in _COLUMNS}))
    session.flush()


def delete_policy(session: Writer, tenant: Tenant) -> bool:
    """Delete the policy of a tenant; return whether there was one."""
    done = session.execute(delete(ReportPolicyRow).where(ReportPolicyRow.tenant_id == tenant.id))
    return cast("CursorResult[None]", done).rowcount > 0


def _record(row: ReportPolicyRow) -> ReportPolicyRecord:
    return ReportPolicyRecord(**{name: getattr(row, name) for name in _COLUMNS})
