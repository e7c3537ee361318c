"""Queries that verify fingerprints: what rows say, beside what payloads are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Select, func, literal, null, select, update

from app.fingerprints.records import Feed
from app.fingerprints.repositories import feeds
from app.infra.db.database import Reader, Writer
from app.infra.db.tables.base import table_of
from app.infra.db.tables.fingerprints import (
    FingerprintFeedRow,
    FingerprintPayloadRow,
    FingerprintRow,
)

__all__ = [
    "StoredPayload",
    "count_again",
    "lock_payload",
    "miscounted_tenants",
    "payloads_after",
    "write_keys",
]


@dataclass(frozen=True, slots=True)
class StoredPayload:
    """A fingerprint as its row says, and as its payload is.

    Attributes:
        noted_size: the bytes of the payload, as the row says.
        size: the bytes that it has; None where it is missing.
        data: the payload, if it was asked for.
    """

    id: int
    tenant_id: int
    name: str
    version: int
    digest: str
    noted_size: int
    size: int | None
    data: bytes
    finding_scale: int
    finding_keys: bytes


def miscounted_tenants(session: Reader) -> list[tuple[int, Feed, Feed]]:
    """The tenants whose counts are wrong: what the feed's row says, and what there is."""
    feed, row = FingerprintFeedRow, FingerprintRow
    counted = (
        select(row.tenant_id, func.count().label("n"), func.sum(row.size).label("bytes"))
        .group_by(row.tenant_id)
        .subquery()
    )
    found = select(
        feed.tenant_id,
        feed.fingerprints,
        feed.bytes,
        func.coalesce(counted.c.n, 0),
        func.coalesce(counted.c.bytes, 0),
    ).outerjoin(counted, counted.c.tenant_id == feed.tenant_id)
    return [
        (tenant, Feed(fingerprints=n, bytes=size), Feed(fingerprints=have, bytes=int(real)))
        for tenant, n, size, have, real in session.execute(found)
        if (n, size) != (have, int(real))
    ]


def count_again(session: Writer, tenant_id: int) -> None:
    """Set the counts of a tenant's feed to what there is."""
    feeds.lock_feed(session, tenant_id)
    row = FingerprintRow
    query = select(func.count(), func.coalesce(func.sum(row.size), 0))
    count, size = session.execute(query.where(row.tenant_id == tenant_id)).one()
    session.execute(
        update(table_of(FingerprintFeedRow))
        .where(FingerprintFeedRow.tenant_id == tenant_id)
        .values(fingerprints=count, bytes=int(size))
    )


def payloads_after(
    session: Reader, fingerprint_id: int, limit: int, *, whole: bool
) -> Sequence[StoredPayload]:
    """The next fingerprints of any tenant, by id.

    Args:
        whole: whether to read the payloads, too.
    """
    query = _query(whole=whole).where(FingerprintRow.id > fingerprint_id)
    rows = session.execute(query.order_by(FingerprintRow.id).limit(limit))
    return [_stored(row) for row in rows]


def lock_payload(session: Writer, fingerprint_id: int) -> StoredPayload | None:
    """A fingerprint with its payload, under the lock of its tenant's feed; None if it is gone."""
    tenant_id = session.scalar(
        select(FingerprintRow.tenant_id).where(FingerprintRow.id == fingerprint_id)
    )
    if tenant_id is None:
        return None
    feeds.lock_feed(session, tenant_id)
    row = session.execute(_query(whole=True).where(FingerprintRow.id == fingerprint_id)).first()
    return None if row is None else _stored(row)


def write_keys(session: Writer, stored: StoredPayload, scale: int, keys: bytes) -> None:
    """Replace the finding keys of a locked fingerprint, at a new version of its feed."""
    version = feeds.advance(session, stored.tenant_id)
    session.execute(
        update(table_of(FingerprintPayloadRow))
        .where(FingerprintPayloadRow.fingerprint_id == stored.id)
        .values(finding_scale=scale.bit_length() - 1, finding_keys=keys)
    )
    session.execute(
        update(table_of(FingerprintRow))
        .where(FingerprintRow.id == stored.id)
        .values(version=version)
    )


def _query(*, whole: bool) -> Select[Any]:
    row, payload = FingerprintRow, FingerprintPayloadRow
    read = (payload.data, payload.finding_keys) if whole else (null(), null())
    return select(
        row.id,
        row.tenant_id,
        row.name,
        row.version,
        row.digest,
        row.size,
        func.length(payload.data),
        func.coalesce(payload.finding_scale, literal(0)),
        *read,
    ).outerjoin(payload, payload.fingerprint_id == row.id)


def _stored(row: Any) -> StoredPayload:
    found, tenant, name, version, digest, noted, size, scale, data, keys = row
    return StoredPayload(
        found, tenant, name, version, digest, noted, size, data or b"", 1 << scale, keys or b""
    )
