"""Queries over tenants, the token that names this installation, and its secret."""

from __future__ import annotations

from sqlalchemy import select, update
from sqlalchemy.exc import IntegrityError

from app.infra.db.database import Reader, Writer
from app.infra.db.tables.tenants import InstallationRow, TenantRow
from app.tenancy.auth.records import Tenant

__all__ = [
    "claim_blob_store",
    "ensure_tenant",
    "find_blob_store",
    "find_tenant",
    "get_tenant",
    "forget_blob_store",
    "list_tenants",
    "noise_key",
    "store_token",
]


def store_token(session: Reader) -> str:
    """The token of this installation, created with its database."""
    return session.scalars(select(InstallationRow.token)).one()


def noise_key(session: Reader) -> bytes:
    """Return the key of the noise of public spaces: random, and in no name, key or log."""
    drawn = session.scalars(select(InstallationRow.noise_key)).one()
    assert drawn is not None, "the migration that adds it draws it"
    return drawn


def find_blob_store(session: Reader) -> str | None:
    """The id of the store that has the supports; None before the first start on one."""
    return session.scalars(select(InstallationRow.store_id)).one()


def claim_blob_store(session: Writer, store_id: str) -> str:
    """Note the id of the store if none is noted; return the noted id."""
    session.execute(
        update(InstallationRow)
        .where(InstallationRow.store_id.is_(None))
        .values(store_id=store_id)
        .execution_options(synchronize_session=False)
    )
    return session.scalars(select(InstallationRow.store_id)).one() or store_id


def forget_blob_store(session: Writer) -> None:
    """Let the next start get to know the store that it finds."""
    session.execute(update(InstallationRow).values(store_id=None))


def find_tenant(session: Reader, name: str) -> Tenant | None:
    """The tenant of this name, or None."""
    row = session.scalar(select(TenantRow).where(TenantRow.name == name))
    return None if row is None else Tenant(id=row.id, name=row.name)


def get_tenant(session: Reader, tenant_id: int) -> Tenant:
    """The tenant of a row that names it, which no tenant is removed before."""
    row = session.scalars(select(TenantRow).where(TenantRow.id == tenant_id)).one()
    return Tenant(row.id, row.name)


def list_tenants(session: Reader) -> list[Tenant]:
    """All tenants by name, the service's own included."""
    rows = session.scalars(select(TenantRow).order_by(TenantRow.name))
    return [Tenant(id=row.id, name=row.name) for row in rows]


def ensure_tenant(session: Writer, name: str) -> Tenant:
    """The tenant of this name, created if it does not exist."""
    known = select(TenantRow).where(TenantRow.name == name)
    row = session.scalar(known)
    if row is None:
        try:
            with session.begin_nested():
                session.add(TenantRow(name=name))
        except IntegrityError:  # another process was first, and its row is committed by now
            pass
        row = session.scalars(known).one()
    return Tenant(id=row.id, name=row.name)
