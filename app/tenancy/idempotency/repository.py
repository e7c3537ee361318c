"""Queries over idempotency keys and the answers that are kept for them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, and_, delete, func, select, update
from sqlalchemy.exc import IntegrityError

from app.infra.db.database import Reader, Writer
from app.infra.db.excess import excess_of
from app.infra.db.ids import new_id
from app.infra.db.tables.tenants import IdempotencyKeyRow
from app.tenancy.auth.records import Tenant
from app.tenancy.idempotency.records import LIFETIME, Answer, KeptAnswer

__all__ = ["claim", "forget", "get", "keep", "prune_excess", "prune_expired", "tenants_beyond"]


def claim(session: Writer, tenant: Tenant, key: str, fingerprint: bytes, now: datetime) -> bool:
    """Take the key for this transaction; False where it was used within its lifetime.

    While another transaction has taken it, this waits for the end of that one.
    """
    old = IdempotencyKeyRow.created_at <= now - LIFETIME
    session.execute(delete(IdempotencyKeyRow).where(_is(tenant, key), old))
    try:
        with session.begin_nested():
            session.add(
                IdempotencyKeyRow(
                    id=new_id(now),
                    tenant_id=tenant.id,
                    key=key,
                    fingerprint=fingerprint,
                    created_at=now,
                )
            )
    except IntegrityError:
        return False
    return True


def get(session: Reader, tenant: Tenant, key: str) -> KeptAnswer:
    """The answer that is kept for a key that was used."""
    row = session.scalars(select(IdempotencyKeyRow).where(_is(tenant, key))).one()
    encrypted = row.secret_answer is not None
    content = row.secret_answer if encrypted else row.answer
    assert content is not None
    assert row.status is not None
    return KeptAnswer(row.fingerprint, Answer(row.status, row.location, content), encrypted)


def keep(session: Writer, tenant: Tenant, key: str, answer: Answer, *, encrypted: bool) -> None:
    """Keep the answer to the request that has claimed the key."""
    content = "secret_answer" if encrypted else "answer"
    values: dict[str, Any] = {content: answer.content}
    session.execute(
        update(IdempotencyKeyRow)
        .where(_is(tenant, key))
        .values(status=answer.status, location=answer.location, **values)
    )


def forget(session: Writer, tenant: Tenant, key: str) -> None:
    """Give the key free."""
    session.execute(delete(IdempotencyKeyRow).where(_is(tenant, key)))


def prune_expired(session: Writer, now: datetime, limit: int) -> int:
    """Delete keys whose lifetime is over; returns how many were."""
    old = select(IdempotencyKeyRow.id).where(IdempotencyKeyRow.created_at <= now - LIFETIME)
    oldest = old.order_by(IdempotencyKeyRow.created_at).limit(limit)
    gone = delete(IdempotencyKeyRow).where(IdempotencyKeyRow.id.in_(oldest))
    return len(session.execute(gone.returning(IdempotencyKeyRow.id)).all())


def tenants_beyond(session: Reader, kept: int) -> Sequence[int]:
    """Return the tenants with more than ``kept`` keys."""
    owner = IdempotencyKeyRow.tenant_id
    return session.scalars(select(owner).group_by(owner).having(func.count() > kept)).all()


def prune_excess(session: Writer, tenant_id: int, kept: int, limit: int) -> int:
    """Delete a tenant's oldest keys beyond the newest ``kept``; returns how many were."""
    owned = IdempotencyKeyRow.tenant_id == tenant_id
    excess = excess_of(select(func.count(IdempotencyKeyRow.id)).where(owned), kept, limit)
    oldest = select(IdempotencyKeyRow.id).where(owned).order_by(IdempotencyKeyRow.created_at)
    gone = delete(IdempotencyKeyRow).where(IdempotencyKeyRow.id.in_(oldest.limit(excess)))
    return len(session.execute(gone.returning(IdempotencyKeyRow.id)).all())


def _is(tenant: Tenant, key: str) -> ColumnElement[bool]:
    return and_(IdempotencyKeyRow.tenant_id == tenant.id, IdempotencyKeyRow.key == key)
