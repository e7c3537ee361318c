"""Queries over public spaces, and over how often each tenant has asked them."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Select, and_, case, delete, or_, select, tuple_, update
from sqlalchemy.exc import IntegrityError

from app.infra.db.database import Reader, Writer
from app.infra.db.pagination import decode_cursor, page_length, page_of
from app.infra.db.tables.catalog import SpaceRow
from app.infra.db.tables.public import PublicQueryCountRow, PublicSpaceRow
from app.infra.errors import PublicSpaceNotFound
from app.models.spaces.records import SpaceRecord
from app.models.spaces.repositories import spaces
from app.search.public.records import PublicSettings, PublicSpace
from app.tenancy.auth.records import Tenant
from modelkin.types.paging import Page

__all__ = [
    "count_query",
    "delete_public_space",
    "find_public_space",
    "find_settings",
    "list_public_spaces",
    "no_public_space",
    "prune_counts",
    "put_public_space",
    "queries_of",
    "still_public",
]


def find_settings(session: Reader, space: SpaceRecord) -> PublicSpace | None:
    """A space as it is public, or None."""
    row = session.get(PublicSpaceRow, space.id, populate_existing=True)
    return None if row is None else _record(row)


def find_public_space(session: Reader, owner: str, space: str) -> PublicSpace | None:
    """The public space of these names, or None."""
    query = _existing().where(PublicSpaceRow.owner == owner, PublicSpaceRow.space == space)
    row = session.scalar(query)
    return None if row is None else _record(row)


def still_public(session: Reader, public: PublicSpace) -> PublicSpace:
    """A public space as it is now.

    Raises:
        PublicSpaceNotFound: the space is public no more.
    """
    query = _existing().where(PublicSpaceRow.space_id == public.space_id)
    row = session.scalar(query.execution_options(populate_existing=True))
    if row is None:
        raise no_public_space(public.owner, public.space)
    return _record(row)


def no_public_space(owner: str, space: str) -> PublicSpaceNotFound:
    """The error for a space that is not public, whatever there is."""
    return PublicSpaceNotFound(f"tenant {owner!r} has no public space {space!r}")


def list_public_spaces(session: Reader, *, limit: int, cursor: str | None) -> Page[PublicSpace]:
    """The public spaces of all tenants, by the names of the tenant and the space."""
    query = _existing()
    names = tuple_(PublicSpaceRow.owner, PublicSpaceRow.space)
    if cursor is not None:
        owner, _, space = decode_cursor(cursor).partition("/")
        query = query.where(names > (owner, space))
    query = query.order_by(PublicSpaceRow.owner, PublicSpaceRow.space)
    count, more = page_length(session, query, limit)
    rows = session.scalars(query.limit(count)).all()
    return page_of(map(_record, rows), more, lambda public: f"{public.owner}/{public.space}")


def put_public_space(session: Writer, public: PublicSpace) -> None:
    """Store a public space; a public one keeps the time when it became public.

    The caller holds the lock of the space. A version before may have deleted a space of this name:
    its row stays until the clean-up.
    """
    session.execute(
        delete(PublicSpaceRow).where(
            PublicSpaceRow.owner == public.owner,
            PublicSpaceRow.space == public.space,
            PublicSpaceRow.space_id != public.space_id,
        )
    )
    chosen = public.settings
    values: dict[str, Any] = {
        "step": chosen.step,
        "floor": chosen.floor,
        "daily_queries": chosen.daily_queries,
        "description": chosen.description,
    }
    its = PublicSpaceRow.space_id == public.space_id
    changed = session.execute(
        update(PublicSpaceRow).where(its).values(**values).returning(PublicSpaceRow.space_id)
    )
    if changed.first() is None:
        session.add(
            PublicSpaceRow(
                space_id=public.space_id,
                tenant_id=public.owner_id,
                owner=public.owner,
                space=public.space,
                created_at=public.created_at,
                **values,
            )
        )
        session.flush()


def delete_public_space(session: Writer, space: SpaceRecord) -> None:
    """Let a space be public no more."""
    session.execute(delete(PublicSpaceRow).where(PublicSpaceRow.space_id == space.id))


def count_query(
    session: Writer, public: PublicSpace, tenant: Tenant, day: int, limit: int
) -> int | None:
    """Count a query of a tenant on a day; return the count with it, or None beyond the limit.

    Other transactions of the tenant wait for this one statement.
    """
    old = PublicQueryCountRow.day < day
    count = (
        update(PublicQueryCountRow)
        .where(_is(public, tenant), or_(old, PublicQueryCountRow.queries < limit))
        .values(
            day=case((old, day), else_=PublicQueryCountRow.day),
            queries=case((old, 1), else_=PublicQueryCountRow.queries + 1),
        )
        .returning(PublicQueryCountRow.queries)
        .execution_options(synchronize_session=False)
    )
    counted: int | None = session.scalar(count)
    if counted is None and _insert_count(session, public, tenant, day):
        counted = session.scalar(count)
    return counted


def queries_of(session: Reader, public: PublicSpace, tenant: Tenant, day: int) -> int:
    """Return the number of queries of a tenant on a day."""
    query = select(PublicQueryCountRow.queries)
    mine = query.where(_is(public, tenant), PublicQueryCountRow.day >= day)
    return session.scalar(mine) or 0


def prune_counts(session: Writer, day: int) -> None:
    """Delete the counts of the days before this one."""
    session.execute(delete(PublicQueryCountRow).where(PublicQueryCountRow.day < day))


def _insert_count(session: Writer, public: PublicSpace, tenant: Tenant, day: int) -> bool:
    """Begin a count at 0, unless there is one; return whether there may be room in it."""
    if session.scalar(select(PublicQueryCountRow.day).where(_is(public, tenant))) is not None:
        return False
    try:
        with session.begin_nested():
            session.add(
                PublicQueryCountRow(
                    space_id=public.space_id, tenant_id=tenant.id, day=day, queries=0
                )
            )
    except IntegrityError:  # another transaction was first, or the space is deleted
        pass
    return True


def _existing() -> Select[PublicSpaceRow]:
    """Public spaces, without those whose space a version before has deleted."""
    deleted = select(SpaceRow.id).where(SpaceRow.id == PublicSpaceRow.space_id, ~spaces.exists)
    return select(PublicSpaceRow).where(~deleted.exists())


def _is(public: PublicSpace, tenant: Tenant) -> ColumnElement[bool]:
    return and_(
        PublicQueryCountRow.space_id == public.space_id, PublicQueryCountRow.tenant_id == tenant.id
    )


def _record(row: PublicSpaceRow) -> PublicSpace:
    return PublicSpace(
        space_id=row.space_id,
        owner_id=row.tenant_id,
        owner=row.owner,
        space=row.space,
        settings=PublicSettings(row.step, row.floor, row.daily_queries, row.description),
        created_at=row.created_at,
    )
