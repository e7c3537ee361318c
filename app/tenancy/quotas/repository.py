"""Queries for quotas: a tenant's overrides of the settings, and its usage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Select, bindparam, func, select, true, update

from app.infra.db.database import Reader, Writer
from app.infra.db.tables.base import table_of
from app.infra.db.tables.catalog import SpaceRow
from app.infra.db.tables.tenants import TenantRow

__all__ = [
    "TenantUsage",
    "all_overrides",
    "lock_tenant",
    "overrides",
    "set_overrides",
    "read_usage",
]


@dataclass(frozen=True, slots=True)
class TenantUsage:
    """A tenant's usage in all its spaces, and the quotas in which it differs from the settings."""

    overrides: Mapping[str, Any] | None
    models: int
    support_bytes: int


def overrides(session: Reader, tenant_id: int) -> Mapping[str, Any] | None:
    """The quotas of a tenant that differ from the settings, by name."""
    row = session.rows(_OVERRIDES, tenant=tenant_id).first()
    return None if row is None else row.quotas


def all_overrides(session: Reader) -> list[tuple[int, Mapping[str, Any] | None]]:
    """Return the overrides of all tenants, by the tenants' ids."""
    rows = session.execute(select(TenantRow.id, TenantRow.quotas).order_by(TenantRow.id))
    return [(tenant_id, quotas) for tenant_id, quotas in rows]


def set_overrides(session: Writer, tenant_id: int, quotas: Mapping[str, Any]) -> None:
    """Replace the quotas of a tenant that differ from the settings."""
    session.execute(
        update(TenantRow)
        .where(TenantRow.id == tenant_id)
        .values(quotas=dict(quotas) or None)
        .execution_options(synchronize_session=False)
    )


def lock_tenant(session: Writer, tenant_id: int) -> None:
    """Lock a tenant until the transaction ends, so that one writer at a time counts its usage.

    The lock excludes no row that refers to the tenant. Take it after the lock of a space.
    """
    query = select(TenantRow.id).where(TenantRow.id == tenant_id)
    session.execute(query.with_for_update(key_share=True))


def read_usage(session: Reader, tenant_id: int) -> TenantUsage:
    """Return the usage of a tenant, read in one statement."""
    quotas, models, support_bytes = session.execute(_STORED, {"tenant": tenant_id}).one()
    return TenantUsage(quotas, int(models), int(support_bytes))


def _stored_query() -> Select[Any]:
    sums = (
        select(
            func.coalesce(func.sum(SpaceRow.supports + SpaceRow.signatures), 0).label("models"),
            func.coalesce(func.sum(SpaceRow.support_bytes), 0).label("bytes"),
        )
        .where(SpaceRow.tenant_id == bindparam("tenant"))
        .subquery()
    )
    query = select(TenantRow.quotas, sums.c.models, sums.c.bytes).join(sums, true())
    return query.where(TenantRow.id == bindparam("tenant"))


_STORED = _stored_query()
"""The query of a tenant's usage, made once: compiling it takes longer than executing it."""
_OVERRIDES = select(table_of(TenantRow).c.quotas).where(
    table_of(TenantRow).c.id == bindparam("tenant")
)
