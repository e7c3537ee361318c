"""Queries for the change feed of a tenant's fingerprints, which indices follow.

The rows of fingerprints, read from a version on, are their own change log; removals leave
tombstones beside it. Each change has the next version under the lock of the feed's row. So a reader
that sees a version sees all earlier ones, too.

Old tombstones are deleted, because they would only grow; the compacted version says up to where. An
index of an earlier version cannot know which fingerprints are gone, and starts again.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from sqlalchemy import Insert, Select, bindparam, delete, func, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.sql.dml import ReturningUpdate

from app.fingerprints.records import Feed
from app.infra.db.database import Reader, Writer
from app.infra.db.tables.base import table_of
from app.infra.db.tables.fingerprints import FingerprintFeedRow, FingerprintTombstoneRow

__all__ = [
    "advance",
    "feeds_to_compact",
    "lock_feed",
    "prune_tombstones",
    "read_feed",
    "removed_since",
]


def read_feed(session: Reader, tenant_id: int) -> Feed:
    """The feed of a tenant, as the transaction sees it."""
    row = session.rows(_feed(), tenant=tenant_id).first()
    return Feed() if row is None else Feed(*row)


def lock_feed(session: Writer, tenant_id: int) -> Feed:
    """The present feed of a tenant, locked until the transaction ends.

    Take it after the lock of a space: changes of a tenant's fingerprints wait in line.
    """
    row = session.rows(_locked_feed(), tenant=tenant_id).first()
    if row is None:
        session.execute(_first_feed(session.get_bind().dialect.name), {"tenant_id": tenant_id})
        row = session.rows(_locked_feed(), tenant=tenant_id).one()
    return Feed(*row)


def advance(
    session: Writer, tenant_id: int, *, by: int = 1, fingerprints: int = 0, size: int = 0
) -> int:
    """Advance the version and the counts of the locked feed; return the new version.

    Args:
        by: the number of changes; each has its own version.
        fingerprints: the number of additional fingerprints.
        size: the additional bytes of their payloads.
    """
    more = {"tenant": tenant_id, "changes": by, "more": fingerprints, "size": size}
    return session.execute(_advance(), more).scalar_one()


def removed_since(session: Reader, tenant_id: int, version: int) -> list[int]:
    """The ids of the fingerprints that were removed after ``version``."""
    removed = (
        FingerprintTombstoneRow.tenant_id == tenant_id,
        FingerprintTombstoneRow.version > version,
    )
    return list(session.scalars(select(FingerprintTombstoneRow.fingerprint_id).where(*removed)))


def feeds_to_compact(session: Reader, more_than: int) -> list[tuple[int, int, int]]:
    """The feeds with more than ``more_than`` tombstones: tenant, fingerprints and tombstones."""
    feed, tombstones = FingerprintFeedRow, func.count()
    query = (
        select(feed.tenant_id, feed.fingerprints, tombstones)
        .join(FingerprintTombstoneRow, FingerprintTombstoneRow.tenant_id == feed.tenant_id)
        # A version removes at most one, so this condition saves counting for most tenants.
        .where(feed.version - feed.compacted_version > more_than)
        .group_by(feed.tenant_id, feed.fingerprints)
        .having(tombstones > more_than)
    )
    return [(tenant, held, removed) for tenant, held, removed in session.execute(query)]


def prune_tombstones(session: Writer, tenant_id: int, *, keep: int, batch_size: int) -> int:
    """Delete the oldest tombstones of a tenant but ``keep``; return how many it deleted.

    Args:
        batch_size: the most that one call deletes.
    """
    lock_feed(session, tenant_id)
    row = FingerprintTombstoneRow
    of_tenant = row.tenant_id == tenant_id
    total = session.scalars(select(func.count()).select_from(row).where(of_tenant)).one()
    count = min(total - keep, batch_size)
    if count <= 0:  # another process was first
        return 0
    oldest = select(row.version).where(of_tenant).order_by(row.version)
    until = session.scalars(oldest.limit(1).offset(count - 1)).one()
    moved = update(FingerprintFeedRow).where(FingerprintFeedRow.tenant_id == tenant_id)
    unsynchronized = {"synchronize_session": False}
    session.execute(moved.values(compacted_version=until).execution_options(**unsynchronized))
    pruned = delete(row).where(of_tenant, row.version <= until)
    session.execute(pruned.execution_options(**unsynchronized))
    return count


# Each query is built once: to build it takes as long as to ask it.


@cache
def _feed() -> Select[Any]:
    table = table_of(FingerprintFeedRow)
    columns = table.c.version, table.c.compacted_version, table.c.fingerprints, table.c.bytes
    return select(*columns).where(table.c.tenant_id == bindparam("tenant"))


@cache
def _locked_feed() -> Select[Any]:
    return _feed().with_for_update()


@cache
def _first_feed(dialect: str) -> Insert:
    """Insert the feed of a tenant, unless another writer was first."""
    table = table_of(FingerprintFeedRow)
    insert = postgresql.insert(table) if dialect == "postgresql" else sqlite.insert(table)
    empty = {"version": 0, "compacted_version": 0, "fingerprints": 0, "bytes": 0}
    made = insert.values(tenant_id=bindparam("tenant_id"), **empty)
    return made.on_conflict_do_nothing(index_elements=["tenant_id"])


@cache
def _advance() -> ReturningUpdate[int]:
    table = table_of(FingerprintFeedRow)
    more = {"version": "changes", "fingerprints": "more", "bytes": "size"}
    return (
        update(table)
        .where(table.c.tenant_id == bindparam("tenant"))
        .values({name: table.c[name] + bindparam(key) for name, key in more.items()})
        .returning(table.c.version)
    )
