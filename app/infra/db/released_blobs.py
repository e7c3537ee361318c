"""Queries for released blobs, which no row names any more since a change.

The blobs are listed in the transaction of that change and deleted after a time of grace, so that
every copy of the database that is not older finds its supports.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from sqlalchemy import bindparam, delete, func, select, text

from app.infra.db.database import Reader, Writer
from app.infra.db.tables.base import Moment
from app.infra.db.tables.blobs import ReleasedBlobRow
from app.infra.db.tables.catalog import SpaceRow
from app.infra.db.tables.index import SketchSegmentRow
from app.infra.db.tables.learngenes import LearngeneRow
from app.infra.db.tables.tenants import InstallationRow

__all__ = [
    "LEARNGENES",
    "SKETCHES",
    "bytes_by_tenant",
    "due",
    "forget",
    "oldest",
    "release",
    "release_space",
    "find_released",
    "space_of",
]

LEARNGENES: Final = "learngenes"
"""The folder of the files of learngenes, with a folder for each space."""
SKETCHES: Final = "sketches"
"""The folder of packed sketches, with a folder for each space."""
_IDS_PER_STATEMENT = 500  # below every backend's limit of bound parameters
_INSERT = text(
    "INSERT INTO released_blobs (key, released_at, tenant_id, size) "
    "VALUES (:key, :at, :tenant, :size) ON CONFLICT DO NOTHING"
).bindparams(bindparam("at", type_=Moment()))


def release(session: Writer, tenant_id: int, blobs: Mapping[str, int | None]) -> None:
    """List blobs that no row names once this transaction is committed.

    Args:
        session: the transaction of the change.
        tenant_id: the tenant that owns them.
        blobs: their sizes by key; None for an unknown size.
    """
    now = datetime.now(UTC)
    rows = [
        {"key": key, "at": now, "tenant": tenant_id, "size": size or 0}
        for key, size in blobs.items()
    ]
    if rows:
        session.execute(_INSERT, rows)


def release_space(session: Writer, space_id: int) -> None:
    """List all blobs of a space that this transaction deletes, by the prefix of their keys."""
    token = session.scalars(select(InstallationRow.token)).one()
    query = select(SpaceRow.tenant_id, SpaceRow.support_bytes).where(SpaceRow.id == space_id)
    tenant_id, size = session.execute(query).one()
    kept = select(func.sum(LearngeneRow.size)).where(
        LearngeneRow.space_id == space_id, LearngeneRow.blob_key.is_not(None)
    )
    learngenes = session.scalar(kept)
    folders = {f"{token}/{space_id}/": size}
    if learngenes is not None:
        folders[f"{token}/{LEARNGENES}/{space_id}/"] = int(learngenes)
    packed = select(SketchSegmentRow.space_id).where(SketchSegmentRow.space_id == space_id)
    if session.scalars(packed.limit(1)).first() is not None:
        folders[f"{token}/{SKETCHES}/{space_id}/"] = 0
    release(session, tenant_id, folders)


def bytes_by_tenant(session: Reader) -> dict[int, int]:
    """The bytes of the released blobs of each tenant that still exist."""
    query = select(ReleasedBlobRow.tenant_id, func.sum(ReleasedBlobRow.size))
    rows = session.execute(query.group_by(ReleasedBlobRow.tenant_id))
    return {tenant_id: int(size) for tenant_id, size in rows}


def oldest(session: Reader, tenant_id: int, limit: int) -> list[tuple[str, int]]:
    """The keys and sizes of the blobs that a tenant released first."""
    query = select(ReleasedBlobRow.key, ReleasedBlobRow.size).where(
        ReleasedBlobRow.tenant_id == tenant_id
    )
    rows = session.execute(query.order_by(ReleasedBlobRow.released_at).limit(limit))
    return [(key, size) for key, size in rows]


def due(session: Reader, before: datetime, limit: int) -> Sequence[str]:
    """The keys that were released until ``before``, the oldest first, ``limit`` at most."""
    query = select(ReleasedBlobRow.key).where(ReleasedBlobRow.released_at <= before)
    return session.scalars(query.order_by(ReleasedBlobRow.released_at).limit(limit)).all()


def forget(session: Writer, keys: Sequence[str]) -> None:
    """Take keys off the list."""
    for at in range(0, len(keys), _IDS_PER_STATEMENT):
        some = ReleasedBlobRow.key.in_(keys[at : at + _IDS_PER_STATEMENT])
        session.execute(delete(ReleasedBlobRow).where(some))


def find_released(session: Reader, keys: Iterable[str]) -> set[str]:
    """Return the ``keys`` that are listed, or whose space is."""
    asked = {key: f"{key.rsplit('/', 2)[0]}/" for key in keys}
    wanted, listed = [*asked, *set(asked.values())], set[str]()
    for at in range(0, len(wanted), _IDS_PER_STATEMENT):
        some = ReleasedBlobRow.key.in_(wanted[at : at + _IDS_PER_STATEMENT])
        listed.update(session.scalars(select(ReleasedBlobRow.key).where(some)))
    return {key for key, space in asked.items() if key in listed or space in listed}


def space_of(key: str) -> int | None:
    """The id of the space whose blobs ``key`` stands for; None for the key of one blob."""
    return int(key.rsplit("/", 2)[1]) if key.endswith("/") else None
