"""Queries over API keys, and over the sessions of visitors that have one."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime
from functools import cache
from typing import Any, Final

from sqlalchemy import ColumnElement, Select, and_, bindparam, delete, func, or_, select, update
from sqlalchemy.exc import IntegrityError

from app.infra.db.database import Reader, Writer
from app.infra.db.pagination import decode_number_cursor, page_length, page_of
from app.infra.db.tables.tenants import ApiKeyRow, TenantRow, VisitorSessionRow
from app.infra.errors import KeyNotFound
from app.tenancy.auth.records import KEY_PREFIX_LENGTH, KeyRecord, Tenant
from modelkin.types.paging import Page

__all__ = [
    "any_key",
    "count_usable",
    "end_all_sessions",
    "end_oldest_sessions",
    "end_session",
    "find_key",
    "find_session",
    "get_key",
    "insert_key",
    "insert_visitor_session",
    "keys_beginning",
    "list_keys",
    "note_uses",
    "open_sessions",
    "page_of_keys",
    "prune_sessions",
    "revoke_key",
    "usable_keys",
]

_MAX_NAMED: Final = 5
"""Keys that a message names."""


def find_key(session: Reader, sha256: bytes) -> KeyRecord | None:
    """The key with this hash, revoked and expired ones included, or None."""
    key: Any = session.rows(_query_by_hash(), sha256=sha256).first()
    return None if key is None else _record(key, Tenant(id=key.tenant_id, name=key.tenant))


def list_keys(session: Reader) -> list[KeyRecord]:
    """Return all keys, oldest first."""
    found = session.execute(_keys())
    return [_record(key, Tenant(id=tenant.id, name=tenant.name)) for key, tenant in found]


def page_of_keys(
    session: Reader, tenant: Tenant, *, limit: int, cursor: str | None
) -> Page[KeyRecord]:
    """The tenant's keys, newest first."""
    query = select(ApiKeyRow).where(ApiKeyRow.tenant_id == tenant.id)
    if cursor is not None:
        query = query.where(ApiKeyRow.id < decode_number_cursor(cursor))
    query = query.order_by(ApiKeyRow.id.desc())
    count, more = page_length(session, query, limit)
    rows = session.scalars(query.limit(count)).all()
    return page_of((_record(row, tenant) for row in rows), more, lambda key: key.id)


def get_key(session: Reader, tenant: Tenant, prefix: str) -> KeyRecord:
    """The tenant's key with this prefix.

    Raises:
        KeyNotFound: the tenant has no such key; the message names keys that begin so.
    """
    query = select(ApiKeyRow).where(ApiKeyRow.prefix == prefix, ApiKeyRow.tenant_id == tenant.id)
    row = session.scalar(query)
    if row is None:
        begun = keys_beginning(session, prefix, tenant=tenant)
        raise KeyNotFound(f"there is no key {prefix!r}{begun}")
    return _record(row, tenant)


def count_usable(session: Reader, tenant: Tenant, now: datetime) -> int:
    """Return the number of valid keys of the tenant."""
    query = select(func.count()).select_from(ApiKeyRow)
    return session.scalars(query.where(ApiKeyRow.tenant_id == tenant.id, _usable(now))).one()


def note_uses(session: Writer, key_ids: Collection[int], hour: datetime) -> None:
    """Write down that these keys were used in this hour."""
    unknown = or_(ApiKeyRow.last_used_at.is_(None), ApiKeyRow.last_used_at < hour)
    session.execute(
        update(ApiKeyRow).where(ApiKeyRow.id.in_(key_ids), unknown).values(last_used_at=hour)
    )


def any_key(session: Reader, now: datetime) -> bool:
    """Whether a valid key exists."""
    return session.scalar(select(ApiKeyRow.id).where(_usable(now)).limit(1)) is not None


def usable_keys(session: Reader, ids: Collection[int], now: datetime) -> set[int]:
    """The valid ones of some keys, by id."""
    query = select(ApiKeyRow.id).where(ApiKeyRow.id.in_(ids), _usable(now))
    return set(session.scalars(query))


def insert_key(
    session: Writer,
    tenant: Tenant,
    *,
    prefix: str,
    sha256: bytes,
    label: str,
    scopes: Iterable[str],
    created_at: datetime,
    expires_at: datetime | None,
) -> None:
    """Store a new key; storing it again, from another process too, changes nothing."""
    try:
        with session.begin_nested():
            session.add(
                ApiKeyRow(
                    tenant_id=tenant.id,
                    prefix=prefix,
                    sha256=sha256,
                    label=label,
                    scopes=sorted(scopes),
                    created_at=created_at,
                    expires_at=expires_at,
                )
            )
    except IntegrityError:
        if find_key(session, sha256) is None:
            raise  # not the same key: one whose first characters are taken


def keys_beginning(session: Reader, prefix: str, *, tenant: Tenant | None = None) -> str:
    """Say why a prefix names no key, for the end of a message.

    Args:
        prefix: a prefix that is too short, or mistyped.
        tenant: the tenant whose keys may be named; by default every tenant.
    """
    if len(prefix) >= KEY_PREFIX_LENGTH:
        return ""
    owned = () if tenant is None else (ApiKeyRow.tenant_id == tenant.id,)
    begins = func.substr(ApiKeyRow.prefix, 1, len(prefix)) == prefix
    query = select(ApiKeyRow.prefix).where(begins, ApiKeyRow.revoked_at.is_(None), *owned)
    found = session.scalars(query.order_by(ApiKeyRow.prefix).limit(_MAX_NAMED + 1)).all()
    named = ", ".join(found[:_MAX_NAMED]) + (" and others" if len(found) > _MAX_NAMED else "")
    fits = f"; it may be {named}" if found else ""
    return f": a key is named by its first {KEY_PREFIX_LENGTH} characters{fits}"


def revoke_key(
    session: Writer, prefix: str, now: datetime, *, tenant: Tenant | None = None
) -> bool:
    """Revoke the key with this prefix; False if there is none, or it was revoked before.

    Args:
        tenant: the tenant that must own the key; by default any tenant.
    """
    owned = () if tenant is None else (ApiKeyRow.tenant_id == tenant.id,)
    done = session.execute(
        update(ApiKeyRow)
        .where(ApiKeyRow.prefix == prefix, ApiKeyRow.revoked_at.is_(None), *owned)
        .values(revoked_at=now)
        .returning(ApiKeyRow.id)
    )
    return done.first() is not None


def insert_visitor_session(
    session: Writer, tenant: Tenant, key_id: int, *, sha256: bytes, expires_at: datetime
) -> None:
    """Store a new session of the holder of a key."""
    session.add(
        VisitorSessionRow(tenant_id=tenant.id, key_id=key_id, sha256=sha256, expires_at=expires_at)
    )
    session.flush()


def find_session(session: Reader, sha256: bytes, now: datetime) -> tuple[KeyRecord, int] | None:
    """The key of the session with this hash, and its id; None if the session or the key is over."""
    query = _keys().add_columns(VisitorSessionRow.id)
    query = query.join(VisitorSessionRow, VisitorSessionRow.key_id == ApiKeyRow.id)
    query = query.where(VisitorSessionRow.sha256 == sha256, VisitorSessionRow.expires_at > now)
    found = session.execute(query.where(_usable(now))).first()
    if found is None:
        return None
    key, tenant, session_id = found
    return _record(key, Tenant(id=tenant.id, name=tenant.name)), session_id


def open_sessions(session: Reader, ids: Collection[int], now: datetime) -> set[int]:
    """The sessions, of some, whose time is not over, by id."""
    query = select(VisitorSessionRow.id).where(VisitorSessionRow.id.in_(ids))
    return set(session.scalars(query.where(VisitorSessionRow.expires_at > now)))


def end_session(session: Writer, sha256: bytes) -> None:
    """Delete the session with this hash."""
    session.execute(delete(VisitorSessionRow).where(VisitorSessionRow.sha256 == sha256))


def end_all_sessions(session: Writer) -> None:
    """Delete the sessions of all visitors."""
    session.execute(delete(VisitorSessionRow))


def end_oldest_sessions(session: Writer, key_id: int, *, kept: int) -> None:
    """Delete the sessions of a key but its newest ones."""
    own = select(VisitorSessionRow.id).where(VisitorSessionRow.key_id == key_id)
    newest = own.order_by(VisitorSessionRow.id.desc()).limit(kept)
    session.execute(
        delete(VisitorSessionRow).where(
            VisitorSessionRow.key_id == key_id, VisitorSessionRow.id.not_in(newest)
        )
    )


def prune_sessions(session: Writer, now: datetime, limit: int) -> int:
    """Delete sessions whose time is over; returns how many were."""
    over = select(VisitorSessionRow.id).where(VisitorSessionRow.expires_at <= now)
    oldest = over.order_by(VisitorSessionRow.expires_at).limit(limit)
    gone = delete(VisitorSessionRow).where(VisitorSessionRow.id.in_(oldest))
    return len(session.execute(gone.returning(VisitorSessionRow.id)).all())


def _usable(now: datetime) -> ColumnElement[bool]:
    """The condition of a key that is neither revoked nor expired."""
    lasts = or_(ApiKeyRow.expires_at.is_(None), ApiKeyRow.expires_at > now)
    return and_(ApiKeyRow.revoked_at.is_(None), lasts)


def _keys() -> Select[ApiKeyRow, TenantRow]:
    query = select(ApiKeyRow, TenantRow).join(TenantRow, TenantRow.id == ApiKeyRow.tenant_id)
    return query.order_by(ApiKeyRow.id)


@cache
def _query_by_hash() -> Select[Any]:
    """The query of a key and its tenant, built once: building it takes as long as asking it."""
    query = select(*ApiKeyRow.__table__.columns, TenantRow.name.label("tenant"))
    owned = query.join(TenantRow, TenantRow.id == ApiKeyRow.tenant_id)
    return owned.where(ApiKeyRow.sha256 == bindparam("sha256"))


def _record(key: ApiKeyRow, tenant: Tenant) -> KeyRecord:
    return KeyRecord(
        id=key.id,
        tenant=tenant,
        prefix=key.prefix,
        sha256=key.sha256,
        label=key.label,
        scopes=frozenset(key.scopes),
        created_at=key.created_at,
        expires_at=key.expires_at,
        revoked_at=key.revoked_at,
        last_used_at=_last_use(key),
    )


def _last_use(key: ApiKeyRow) -> datetime | None:
    """The hour of the last use, whose beginning a key that is used at once has not seen."""
    return None if key.last_used_at is None else max(key.last_used_at, key.created_at)
