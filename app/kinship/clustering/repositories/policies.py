"""Queries for the policies by which spaces are clustered again."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, cast

from sqlalchemy import CursorResult, delete, or_, select

from app.infra.db.database import Reader, Writer
from app.infra.db.tables.catalog import ModelRow, SpaceRow
from app.infra.db.tables.clusterings import ClusteringPolicyRow
from app.infra.db.tables.tenants import TenantRow
from app.kinship.clustering.records import ClusteringPolicy
from app.models.spaces.records import SpaceRecord
from app.models.spaces.repositories.spaces import find_space_by_id
from app.tenancy.auth.records import Tenant

__all__ = [
    "delete_policy",
    "find_policy",
    "last_change",
    "lock_policy",
    "record_clustering",
    "put_policy",
    "spaces_to_check",
]

_COLUMNS = tuple(ClusteringPolicy.__dataclass_fields__)


def find_policy(session: Reader, space: SpaceRecord) -> ClusteringPolicy | None:
    """The policy of a space, or None."""
    row = session.get(ClusteringPolicyRow, space.id, populate_existing=True)
    return None if row is None else _record(row)


def spaces_to_check(session: Reader) -> list[int]:
    """The ids of the spaces whose policy has something new to observe."""
    row = ClusteringPolicyRow
    query = (
        select(row.space_id)
        .join(SpaceRow, SpaceRow.id == row.space_id)
        .where(
            or_(
                SpaceRow.version != row.done_version,
                SpaceRow.version != row.seen_version,
                row.due_since.is_not(None),
            )
        )
    )
    return list(session.scalars(query.order_by(row.space_id)))


def lock_policy(
    session: Writer, space_id: int
) -> tuple[ClusteringPolicy, SpaceRecord, Tenant] | None:
    """A space's policy, locked until the transaction ends, the space and its tenant; or None."""
    row = session.scalar(
        select(ClusteringPolicyRow)
        .where(ClusteringPolicyRow.space_id == space_id)
        .with_for_update()
        .execution_options(populate_existing=True)
    )
    space = find_space_by_id(session, space_id)
    if row is None or space is None:
        return None
    query = (
        select(TenantRow)
        .join(SpaceRow, SpaceRow.tenant_id == TenantRow.id)
        .where(SpaceRow.id == space_id)
    )
    tenant = session.scalars(query).one()
    return _record(row), space, Tenant(id=tenant.id, name=tenant.name)


def last_change(session: Reader, space: SpaceRecord) -> datetime | None:
    """The time of the space's last change; None if that was a removal, which has no time."""
    query = select(ModelRow.updated_at).where(
        ModelRow.space_id == space.id, ModelRow.version == space.version
    )
    return session.scalar(query.limit(1))


def put_policy(session: Writer, policy: ClusteringPolicy) -> None:
    """Set the policy of its space. The caller holds the lock of the space or of the policy."""
    session.merge(ClusteringPolicyRow(**{name: getattr(policy, name) for name in _COLUMNS}))
    session.flush()


def record_clustering(
    session: Writer,
    space: SpaceRecord,
    request: Mapping[str, Any],
    version: int,
    requested_at: datetime,
) -> None:
    """Record a clustering of this version in the space's policy, if it has the policy's terms."""
    row = session.scalar(
        select(ClusteringPolicyRow)
        .where(ClusteringPolicyRow.space_id == space.id)
        .with_for_update()
        .execution_options(populate_existing=True)
    )
    if row is not None and row.request == request and row.done_version <= version:
        row.done_version, row.done_at = version, requested_at
        session.flush()


def delete_policy(session: Writer, space: SpaceRecord) -> bool:
    """Delete the policy of a space; return whether there was one."""
    done = session.execute(
        delete(ClusteringPolicyRow).where(ClusteringPolicyRow.space_id == space.id)
    )
    return cast("CursorResult[None]", done).rowcount > 0


def _record(row: ClusteringPolicyRow) -> ClusteringPolicy:
    return ClusteringPolicy(**{name: getattr(row, name) for name in _COLUMNS})
