"""Queries about merges, their parties and their cells."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Exists, delete, func, select, update

from app.infra.db.database import Reader, Writer
from app.infra.db.pagination import decode_cursor, page_length, page_of
from app.infra.db.tables.merges import MergeCellRow, MergePartyRow, MergeRow
from app.infra.db.tables.tenants import TenantRow
from app.infra.errors import MergeNotFound
from app.merges.records import CellKey, CellRecord, MergeRecord, PartyRecord
from app.models.spaces.records import SpaceRecord
from app.tenancy.auth.records import Tenant
from modelkin.federation.shards.plan import Plan
from modelkin.federation.shards.roster import Roster
from modelkin.types.paging import Page

__all__ = [
    "blob_keys",
    "change",
    "change_party",
    "count_cells",
    "count_open",
    "delete_cells",
    "delete_merge",
    "due",
    "find_cell",
    "find_merge",
    "get_merge",
    "held_bytes",
    "insert_cell",
    "insert_merge",
    "insert_party",
    "list_merges",
    "lock_merge",
    "merges_by_id",
    "parties",
    "senders",
    "tenant_of",
    "with_cells",
]

_IDS_PER_STATEMENT: Final = 500  # below every backend's limit of bound parameters
_COLUMNS = tuple(MergeRecord.__dataclass_fields__)
_PARTY = tuple(PartyRecord.__dataclass_fields__)
_KEY = tuple(CellKey.__dataclass_fields__)


def insert_merge(session: Writer, merge: MergeRecord, members: Iterable[str]) -> None:
    """Store a new merge with the members that it awaits."""
    session.add(MergeRow(**_row(merge)))
    session.flush()
    for name in members:
        session.add(MergePartyRow(merge_id=merge.id, name=name, neutral=False, may_aggregate=False))
    session.flush()


def find_merge(session: Reader, space: SpaceRecord, name: str) -> MergeRecord | None:
    """The merge of this name; None if the space has none."""
    query = select(MergeRow).where(MergeRow.space_id == space.id, MergeRow.name == name)
    row = session.scalar(query.execution_options(populate_existing=True))
    return None if row is None else _record(row)


def get_merge(session: Reader, space: SpaceRecord, name: str) -> MergeRecord:
    """The merge of this name, or :class:`MergeNotFound`."""
    found = find_merge(session, space, name)
    if found is None:
        raise MergeNotFound(f"space {space.name!r} has no merge {name!r}")
    return found


def lock_merge(session: Writer, merge_id: str) -> MergeRecord | None:
    """A merge, locked until the transaction ends; None if it was deleted."""
    query = select(MergeRow).where(MergeRow.id == merge_id).with_for_update()
    row = session.scalar(query.execution_options(populate_existing=True))
    return None if row is None else _record(row)


def list_merges(
    session: Reader, space: SpaceRecord, *, limit: int, cursor: str | None
) -> Page[MergeRecord]:
    """The merges of a space, newest first."""
    query = select(MergeRow).where(MergeRow.space_id == space.id)
    if cursor is not None:
        query = query.where(MergeRow.id < decode_cursor(cursor))
    query = query.order_by(MergeRow.id.desc())
    count, more = page_length(session, query, limit)
    rows = session.scalars(query.limit(count)).all()
    return page_of((_record(row) for row in rows), more, lambda each: each.id)


def merges_by_id(session: Reader, ids: Iterable[str]) -> dict[str, MergeRecord]:
    """The existing merges with these ids, of any tenant: the caller has checked access."""
    query = select(MergeRow).where(MergeRow.id.in_(list(ids)))
    rows = session.scalars(query.execution_options(populate_existing=True))
    return {row.id: _record(row) for row in rows}


def due(session: Reader, now: datetime, limit: int) -> Sequence[str]:
    """The ids of merges whose state ends by itself now, the earliest first."""
    query = select(MergeRow.id).where(MergeRow.ended_at.is_(None), MergeRow.due_at <= now)
    return session.scalars(query.order_by(MergeRow.due_at).limit(limit)).all()


def tenant_of(session: Reader, merge: MergeRecord) -> Tenant:
    """The tenant that a merge belongs to."""
    row = session.scalars(select(TenantRow).where(TenantRow.id == merge.tenant_id)).one()
    return Tenant(id=row.id, name=row.name)


def change(session: Writer, merge: MergeRecord, **columns: Any) -> MergeRecord:
    """Set some columns, and count a change that clients can see. The caller holds the lock."""
    values = {**columns, "revision": merge.revision + 1}
    session.execute(
        update(MergeRow)
        .where(MergeRow.id == merge.id)
        .values(**values)
        .execution_options(synchronize_session=False)
    )
    return merges_by_id(session, [merge.id])[merge.id]


def delete_merge(session: Writer, merge: MergeRecord) -> None:
    """Delete a merge with its parties and the rows of its cells."""
    session.execute(
        delete(MergeRow).where(MergeRow.id == merge.id).execution_options(synchronize_session=False)
    )


def count_open(session: Reader, tenant: Tenant) -> int:
    """Return the number of merges of a tenant that have not ended."""
    query = select(func.count()).where(MergeRow.tenant_id == tenant.id, MergeRow.ended_at.is_(None))
    return session.execute(query).scalar_one()


def held_bytes(session: Reader, tenant: Tenant) -> int:
    """Return the most bytes that the cells of a tenant's merges take, until they are deleted.

    Cells outlast the end of their merge, so an ended merge counts for as long as it has cells.
    """
    query = select(func.coalesce(func.sum(MergeRow.size), 0)).where(
        MergeRow.tenant_id == tenant.id, MergeRow.ended_at.is_(None) | _has_cells()
    )
    return int(session.execute(query).scalar_one())


# --- parties ----------------------------------------------------------------------------------


def parties(session: Reader, merge: MergeRecord) -> dict[str, PartyRecord]:
    """The parties of a merge by name, in the order of the roster."""
    query = select(MergePartyRow).where(MergePartyRow.merge_id == merge.id)
    query = query.order_by(MergePartyRow.name).execution_options(populate_existing=True)
    found = (
        PartyRecord(**{name: getattr(row, name) for name in _PARTY})
        for row in session.scalars(query)
    )
    return {party.name: party for party in sorted(found, key=lambda party: party.name)}


def insert_party(session: Writer, merge: MergeRecord, party: PartyRecord) -> None:
    """Store a neutral party."""
    columns = {name: getattr(party, name) for name in _PARTY}
    session.add(MergePartyRow(merge_id=merge.id, **columns))
    session.flush()


def change_party(session: Writer, merge: MergeRecord, name: str, **columns: Any) -> None:
    """Set some columns of a party. The caller holds the lock of the merge."""
    session.execute(
        update(MergePartyRow)
        .where(MergePartyRow.merge_id == merge.id, MergePartyRow.name == name)
        .values(**columns)
        .execution_options(synchronize_session=False)
    )


# --- cells ------------------------------------------------------------------------------------


def find_cell(session: Reader, merge: MergeRecord, key: CellKey) -> CellRecord | None:
    """A stored cell; None before it came."""
    row = session.get(
        MergeCellRow, (merge.id, *(getattr(key, name) for name in _KEY)), populate_existing=True
    )
    return None if row is None else _cell(row)


def insert_cell(session: Writer, merge: MergeRecord, cell: CellRecord) -> None:
    """Store the row of a cell. The caller holds the lock of the merge, and knows it is new."""
    fields = {name: getattr(cell.key, name) for name in _KEY}
    session.add(
        MergeCellRow(
            merge_id=merge.id,
            **fields,
            digest=cell.digest,
            blob_key=cell.blob_key,
            size=cell.size,
        )
    )
    session.flush()


def count_cells(session: Reader, merge: MergeRecord, *, results: bool) -> int:
    """Count the stored cells, or results, of the present attempt."""
    query = select(func.count()).where(
        MergeCellRow.merge_id == merge.id,
        MergeCellRow.attempt == merge.attempt,
        MergeCellRow.is_result == results,
    )
    return session.execute(query).scalar_one()


def senders(session: Reader, merge: MergeRecord, *, results: bool) -> dict[int, int]:
    """Count the cells, or results, of the present attempt by the place of their sender."""
    query = (
        select(MergeCellRow.place, func.count())
        .where(
            MergeCellRow.merge_id == merge.id,
            MergeCellRow.attempt == merge.attempt,
            MergeCellRow.is_result == results,
        )
        .group_by(MergeCellRow.place)
    )
    rows = session.execute(query).all()
    return {row[0]: row[1] for row in rows}


def delete_cells(
    session: Writer, merge: MergeRecord, *, before_attempt: int | None = None
) -> dict[str, int]:
    """Delete the rows of a merge's cells; of earlier attempts alone, if one is given.

    Returns:
        The sizes of their blobs, by key.
    """
    query = delete(MergeCellRow).where(MergeCellRow.merge_id == merge.id)
    if before_attempt is not None:
        query = query.where(MergeCellRow.attempt < before_attempt)
    rows = session.execute(
        query.returning(MergeCellRow.blob_key, MergeCellRow.size).execution_options(
            synchronize_session=False
        )
    )
    return {row.blob_key: row.size for row in rows}


def with_cells(session: Reader, ended_before: datetime, limit: int) -> Sequence[str]:
    """The ids of merges that ended before a moment and have cells still."""
    query = select(MergeRow.id).where(MergeRow.ended_at <= ended_before, _has_cells())
    return session.scalars(query.limit(limit)).all()


def blob_keys(session: Reader, keys: Iterable[str]) -> set[str]:
    """Return the ``keys`` that belong to cells."""
    asked, found = list(keys), set[str]()
    for at in range(0, len(asked), _IDS_PER_STATEMENT):
        some = MergeCellRow.blob_key.in_(asked[at : at + _IDS_PER_STATEMENT])
        found.update(session.scalars(select(MergeCellRow.blob_key).where(some)))
    return found


def _has_cells() -> Exists:
    return select(MergeCellRow.merge_id).where(MergeCellRow.merge_id == MergeRow.id).exists()


def _row(merge: MergeRecord) -> dict[str, Any]:
    columns: dict[str, Any] = {name: getattr(merge, name) for name in _COLUMNS}
    columns["plan"] = merge.plan.to_json()
    columns["roster"] = None if merge.roster is None else merge.roster.to_json()
    columns["request"] = dict(merge.request)
    columns["weights"] = None if merge.weights is None else dict(merge.weights)
    return columns


def _record(row: MergeRow) -> MergeRecord:
    columns: Mapping[str, Any] = {name: getattr(row, name) for name in _COLUMNS}
    plan = Plan.from_json(row.plan)
    roster = None if row.roster is None else Roster.from_json(row.roster)
    return MergeRecord(**{**columns, "plan": plan, "roster": roster})


def _cell(row: MergeCellRow) -> CellRecord:
    key = CellKey(**{name: getattr(row, name) for name in _KEY})
    return CellRecord(key, row.digest, row.blob_key, row.size)
