"""Queries for spaces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from functools import cache
from typing import Any, cast

from sqlalchemy import Select, bindparam, delete, func, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.sql.dml import ReturningUpdate

from app.infra.db.database import Reader, Writer
from app.infra.db.pagination import decode_cursor, page_length, page_of
from app.infra.db.suggestions import near_name
from app.infra.db.tables.base import table_of
from app.infra.db.tables.catalog import ModelRow, SpaceRow
from app.infra.db.tables.public import PublicSpaceRow
from app.infra.errors import SpaceNotFound
from app.models.spaces.records import SpaceRecord
from app.models.spaces.repositories.layouts import insert_layout
from app.models.spaces.terms import SpaceTerms
from app.tenancy.auth.records import Tenant
from modelkin.core.importance import UNSTATED, Importance
from modelkin.core.sketching.banding import Banding
from modelkin.types.paging import Page
from modelkin.types.spaces import SignatureSpec, SubspaceSpec, SupportSizePolicy
from modelkin.types.vocabulary import SignatureScheme, SupportSizePolicyName

__all__ = [
    "RETIRED",
    "add_support_bytes",
    "advance",
    "all_spaces",
    "count_spaces",
    "delete_retired",
    "delete_space",
    "exists",
    "find_by_key",
    "find_by_key_prefix",
    "find_space",
    "find_space_by_id",
    "get_space",
    "insert_space",
    "list_spaces",
    "lock_space",
    "newest",
    "retire_space",
    "retired_spaces",
    "space_ids",
]


RETIRED = "/"
"""The beginning of the names of deleted spaces, until their rows are gone. No other name has it."""
exists = func.substr(SpaceRow.name, 1, 1) != RETIRED
"""The condition that a space is not deleted."""
_KEY = func.coalesce(SpaceRow.source_key, SpaceRow.name)


def find_space(session: Reader, tenant: Tenant, name: str) -> SpaceRecord | None:
    """The tenant's space of this name, or None."""
    row: Any = session.rows(_query_by_name(), tenant=tenant.id, named=name).first()
    return None if row is None else _record(row)


def find_space_by_id(session: Reader, space_id: int) -> SpaceRecord | None:
    """The space of this id, or None if it was deleted."""
    row = session.rows(_by_id(), space=space_id).first()
    return None if row is None else _record(row)


def all_spaces(
    session: Reader, name: str | None = None, *, tenant: Tenant | None = None
) -> Sequence[SpaceRecord]:
    """The spaces of every tenant or of one, by id; with ``name`` those of this name."""
    query = select(SpaceRow).where(exists).order_by(SpaceRow.id)
    if tenant is not None:
        query = query.where(SpaceRow.tenant_id == tenant.id)
    if name is not None:
        query = query.where(SpaceRow.name == name)
    return [_record(row) for row in session.scalars(query)]


def space_ids(session: Reader) -> set[int]:
    """The ids of the spaces of every tenant."""
    return set(session.scalars(select(SpaceRow.id).where(exists)))


def get_space(session: Reader, tenant: Tenant, name: str) -> SpaceRecord:
    """The tenant's space of this name, or :class:`SpaceNotFound`, which names a near one."""
    space = find_space(session, tenant, name)
    if space is None:
        near = near_name(session, SpaceRow.name, (SpaceRow.tenant_id == tenant.id) & exists, name)
        raise SpaceNotFound(f"there is no space {name!r}{near}")
    return space


def list_spaces(
    session: Reader, tenant: Tenant, *, limit: int, cursor: str | None, text: str = ""
) -> Page[SpaceRecord]:
    """The tenant's spaces by name; with ``text`` those that have it in their name."""
    query = select(SpaceRow).where(SpaceRow.tenant_id == tenant.id, exists)
    if text:
        query = query.where(SpaceRow.name.icontains(text, autoescape=True))
    if cursor is not None:
        query = query.where(SpaceRow.name > decode_cursor(cursor))
    query = query.order_by(SpaceRow.name)
    count, more = page_length(session, query, limit)
    rows = session.scalars(query.limit(count)).all()
    return page_of((_record(row) for row in rows), more, lambda space: space.name)


def find_by_key(session: Reader, tenant: Tenant, key: str) -> SpaceRecord | None:
    """The tenant's space that a source finds by a key, or None."""
    query = select(SpaceRow).where(SpaceRow.tenant_id == tenant.id, _KEY == key, exists)
    row = session.scalars(query.order_by(SpaceRow.id).limit(1)).first()
    return None if row is None else _record(row)


def find_by_key_prefix(
    session: Reader, tenant: Tenant, prefix: str, *, limit: int
) -> Sequence[SpaceRecord]:
    """The tenant's spaces whose keys for sources begin with a text, oldest first."""
    keyed = _KEY.startswith(prefix, autoescape=True)
    query = select(SpaceRow).where(SpaceRow.tenant_id == tenant.id, keyed, exists)
    return [_record(row) for row in session.scalars(query.order_by(SpaceRow.id).limit(limit))]


def count_spaces(session: Reader, tenant_id: int) -> int:
    """Return the number of spaces of the tenant."""
    query = select(func.count()).where(SpaceRow.tenant_id == tenant_id, exists)
    return session.scalars(query).one()


def newest(session: Reader, tenant: Tenant, kind: str) -> int:
    """The id of the tenant's newest space of a kind of importance; 0 without one."""
    query = select(func.max(SpaceRow.id)).where(
        SpaceRow.tenant_id == tenant.id, SpaceRow.importance_kind == kind, exists
    )
    return session.scalars(query).one() or 0


def insert_space(
    session: Writer,
    tenant: Tenant,
    name: str,
    terms: SpaceTerms,
    source_key: str | None = None,
) -> SpaceRecord | None:
    """Insert a new, empty space; None if another writer was first with the name."""
    importance = UNSTATED if terms.importance is None else terms.importance
    row = SpaceRow(
        tenant_id=tenant.id,
        name=name,
        num_parameters=terms.num_parameters,
        layout_digest=None if terms.layout is None else terms.layout.digest,
        scheme=terms.signature.scheme,
        num_perm=terms.signature.num_perm,
        seed=terms.signature.seed,
        bands=terms.banding.bands,
        band_rows=terms.banding.rows,
        size_policy=terms.support_size.policy,
        fixed_size=terms.support_size.k,
        importance_kind=importance.kind,
        importance_base=importance.base,
        importance_note=importance.note,
        exclude=list(terms.exclude) or None,
        subspaces=None if terms.subspaces is None else asdict(terms.subspaces),
        blinding=terms.blinding,
        ordered=terms.ordered,
        source_key=source_key,
        version=0,
        supports=0,
        signatures=0,
        created_at=datetime.now(UTC),
    )
    try:
        with session.begin_nested():
            session.add(row)
            session.flush()
            if terms.layout is not None:
                insert_layout(session, row.id, terms.layout)
    except IntegrityError:
        return None
    return _record(row)


def delete_space(session: Writer, space: SpaceRecord) -> None:
    """Delete the space and everything in it; its models, signatures and tags follow by cascade."""
    session.execute(delete(SpaceRow).where(SpaceRow.id == space.id))


def retire_space(session: Writer, space: SpaceRecord) -> None:
    """Take a locked space out of every query and quota at once, and leave its rows for later."""
    session.execute(delete(PublicSpaceRow).where(PublicSpaceRow.space_id == space.id))
    session.execute(
        update(SpaceRow)
        .where(SpaceRow.id == space.id)
        .values(
            name=f"{RETIRED}{space.id}",
            layout_digest=None,
            supports=0,
            signatures=0,
            support_bytes=0,
        )
        .execution_options(synchronize_session=False)
    )


def retired_spaces(session: Reader) -> Sequence[int]:
    """The ids of deleted spaces that have rows still."""
    return session.scalars(select(SpaceRow.id).where(~exists).order_by(SpaceRow.id)).all()


def delete_retired(session: Writer, space_id: int, limit: int) -> bool:
    """Delete at most ``limit`` models of a retired space, and with the last ones the space.

    Returns:
        Whether nothing is left of it.
    """
    some = select(ModelRow.id).where(ModelRow.space_id == space_id).limit(limit)
    gone = session.execute(
        delete(ModelRow)
        .where(ModelRow.id.in_(some.with_for_update(skip_locked=True).scalar_subquery()))
        .returning(ModelRow.id)
        .execution_options(synchronize_session=False)
    )
    if len(gone.all()) == limit:
        return False
    session.execute(delete(SpaceRow).where(SpaceRow.id == space_id, ~exists))
    return True


def lock_space(session: Writer, space: SpaceRecord) -> SpaceRecord:
    """The present space, locked until the transaction ends: changes of a space wait in line.

    Raises:
        SpaceNotFound: the space was deleted since it was read.
    """
    row = session.rows(_locking_query(), space=space.id).first()
    if row is None:
        raise SpaceNotFound(f"there is no space {space.name!r}")
    return _record(row)


def advance(
    session: Writer,
    space: SpaceRecord,
    *,
    by: int = 1,
    supports: int = 0,
    signatures: int = 0,
    support_bytes: int = 0,
) -> int:
    """Advance the version and the counts of the locked space; return the new version.

    Args:
        by: the number of changes; each has its own version.
        supports: the number of additional models with a support.
        signatures: the number of additional models with only a signature.
        support_bytes: the additional bytes of the blobs of its models and revisions.
    """
    more = {"changes": by, "supports": supports, "signatures": signatures, "bytes": support_bytes}
    return session.execute(_advance_statement(), {"space": space.id, **more}).scalar_one()


def rename_importance_base(session: Writer, space: SpaceRecord, base: str) -> None:
    """Name the base of a locked space's differences anew; its digest stays."""
    session.execute(update(SpaceRow).where(SpaceRow.id == space.id).values(importance_base=base))


def add_support_bytes(session: Writer, space: SpaceRecord, more: int) -> None:
    """Correct the bytes of the locked space's supports; its version stays."""
    session.execute(
        update(SpaceRow)
        .where(SpaceRow.id == space.id)
        .values(support_bytes=SpaceRow.support_bytes + more)
        .execution_options(synchronize_session=False)
    )


# The query of every request in a space is built once: building it takes as long as running it.


@cache
def _query_by_name() -> Select[Any]:
    named = SpaceRow.tenant_id == bindparam("tenant"), SpaceRow.name == bindparam("named")
    return select(*SpaceRow.__table__.columns).where(*named, exists)


@cache
def _by_id() -> Select[Any]:
    return select(*SpaceRow.__table__.columns).where(SpaceRow.id == bindparam("space"), exists)


@cache
def _locking_query() -> Select[Any]:
    return _by_id().with_for_update()


@cache
def _advance_statement() -> ReturningUpdate[int]:
    table = table_of(SpaceRow)
    more = {
        "version": "changes",
        "supports": "supports",
        "signatures": "signatures",
        "support_bytes": "bytes",
    }
    values = {name: table.c[name] + bindparam(key) for name, key in more.items()}
    return (
        update(table)
        .where(table.c.id == bindparam("space"))
        .values(values)
        .returning(table.c.version)
    )


def _record(row: Any) -> SpaceRecord:
    return SpaceRecord(
        id=row.id,
        tenant_id=row.tenant_id,
        name=row.name,
        num_parameters=row.num_parameters,
        layout_digest=row.layout_digest,
        signature=SignatureSpec(
            cast(SignatureScheme, row.scheme), num_perm=row.num_perm, seed=row.seed
        ),
        version=row.version,
        supports=row.supports,
        signatures=row.signatures,
        created_at=row.created_at,
        bucket_epoch=row.bucket_epoch,
        banding=Banding(row.bands, row.band_rows),
        compacted_version=row.compacted_version,
        support_size=SupportSizePolicy(
            cast(SupportSizePolicyName, row.size_policy), row.fixed_size
        ),
        importance=Importance(row.importance_kind, row.importance_base, row.importance_note),
        exclude=tuple(row.exclude or ()),
        subspaces=None if row.subspaces is None else SubspaceSpec(**row.subspaces),
        blinding=row.blinding,
        ordered=row.ordered,
        source_key=row.source_key,
    )
