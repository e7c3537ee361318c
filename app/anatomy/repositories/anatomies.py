"""Queries about stored anatomies, about kin, and about what has to be compared again."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import cache
from itertools import zip_longest
from typing import Any, Final, cast

from sqlalchemy import CursorResult, Insert, and_, bindparam, delete, func, or_, select, update
from sqlalchemy.dialects import postgresql, sqlite

from app.anatomy.records import Kin, Summary
from app.infra.db.database import Reader, Writer
from app.infra.db.tables.anatomies import AnatomyRow, KinRow
from app.infra.db.tables.base import Base, table_of
from app.infra.db.tables.tenants import TenantRow
from app.tenancy.auth.records import Tenant
from modelkin.core.fingerprints.anatomy import AnatomyVerdict
from modelkin.core.fingerprints.relations.relation import Relation
from modelkin.core.fingerprints.sources import Verdict

__all__ = [
    "Due",
    "any_due",
    "delete_kin",
    "due_anatomies",
    "find_kin",
    "find_summaries",
    "is_any_due",
    "kin_of",
    "mark_due",
    "mark_kin_due",
    "mark_kin_of_kin_due",
    "part",
    "put_kin",
    "put_off",
    "put_summary",
    "shards_due",
    "shards_of",
]

_PER_STATEMENT: Final = 500
"""Values of one statement: below every backend's limit of bound parameters."""
_UNSYNCHRONIZED: Final = {"synchronize_session": False}


@dataclass(frozen=True, slots=True)
class Due:
    """A fingerprint whose anatomy has to be made.

    Attributes:
        is_changed: whether it has changed itself; else another one came.
        hint: the id of a fingerprint to compare it with; None for none.
        failures: how many attempts have failed.
    """

    fingerprint_id: int
    is_changed: bool
    hint: int | None
    failures: int


# --- what is due ------------------------------------------------------------------------------


def mark_due(
    session: Writer,
    tenant_id: int,
    ids: Collection[int],
    now: datetime,
    *,
    is_changed: bool,
    hint: int | None = None,
) -> None:
    """Have the anatomies of some fingerprints made; of changed ones, instead of those they have."""
    kept = ("due_at", "failures", "is_changed") if is_changed else ("due_at", "failures", "hint")
    _upsert(
        session,
        AnatomyRow,
        [
            {
                "fingerprint_id": each,
                "tenant_id": tenant_id,
                "due_at": now,
                "is_changed": is_changed,
                "hint": hint,
                "failures": 0,
            }
            for each in sorted(ids)
        ],
        kept,
    )


def mark_kin_due(session: Writer, tenant_id: int, fingerprint_id: int, now: datetime) -> int:
    """Have the anatomies of a fingerprint's kin made again; return how many these are."""
    of_kin = select(KinRow.fingerprint_id).where(KinRow.other_id == fingerprint_id)
    return _mark(session, tenant_id, AnatomyRow.fingerprint_id.in_(of_kin), now, None)


def mark_kin_of_kin_due(
    session: Writer, tenant_id: int, ids: Collection[int], now: datetime, *, hint: int, most: int
) -> int:
    """Have the anatomies made of what is kin of some fingerprints, and not yet of ``hint``.

    Args:
        most: how many at most; those that have most in common are the first.
    """
    known = select(KinRow.fingerprint_id).where(KinRow.other_id == hint)
    nearest = func.min(KinRow.log10_p)
    wanted = (
        select(KinRow.other_id)
        .where(KinRow.fingerprint_id.in_(ids), KinRow.other_id != hint)
        .where(KinRow.other_id.not_in(known))
        .group_by(KinRow.other_id)
        .order_by(nearest)
        .limit(most)
    )
    found = list(session.scalars(wanted))
    marked = 0
    for begin in range(0, len(found), _PER_STATEMENT):
        some = AnatomyRow.fingerprint_id.in_(found[begin : begin + _PER_STATEMENT])
        marked += _mark(session, tenant_id, some, now, hint)
    return marked


def due_anatomies(
    session: Reader, tenant_id: int, shard: int, shards: int, now: datetime, *, limit: int
) -> list[Due]:
    """A shard's due anatomies of a tenant, changed fingerprints first: the last and the first due.

    These are in turn, so a put does not wait for a large import, nor does that for later puts.
    """
    row = AnatomyRow
    query = (
        select(row.fingerprint_id, row.is_changed, row.hint, row.failures)
        .where(row.tenant_id == tenant_id, row.due_at <= now, row.fingerprint_id % shards == shard)
        .limit(limit)
    )
    last = query.order_by(row.is_changed.desc(), row.due_at.desc(), row.fingerprint_id.desc())
    first = query.order_by(row.is_changed.desc(), row.due_at, row.fingerprint_id)
    pairs = zip_longest(session.execute(last).all(), session.execute(first).all())
    found = dict.fromkeys(Due(*each) for pair in pairs for each in pair if each)
    return [*found][:limit]


def any_due(session: Reader, before: datetime) -> bool:
    """Whether an anatomy has been due since before a moment."""
    return (
        session.scalar(select(AnatomyRow.fingerprint_id).where(_late(before)).limit(1)) is not None
    )


def is_any_due(session: Reader, tenant_id: int) -> bool:
    """Whether an anatomy of a tenant has to be made."""
    query = select(AnatomyRow.fingerprint_id).where(
        AnatomyRow.tenant_id == tenant_id, AnatomyRow.due_at.is_not(None)
    )
    return session.scalar(query.limit(1)) is not None


def shards_due(session: Reader, before: datetime, shards: int) -> list[tuple[Tenant, int]]:
    """The tenants and shards with an anatomy that has been due since before a moment."""
    shard = AnatomyRow.fingerprint_id % shards
    query = (
        select(TenantRow.id, TenantRow.name, shard)
        .join(TenantRow, TenantRow.id == AnatomyRow.tenant_id)
        .where(_late(before))
        .distinct()
    )
    return [(Tenant(id_, name), found) for id_, name, found in session.execute(query)]


def shards_of(session: Reader, tenant_id: int, now: datetime, shards: int) -> list[int]:
    """The tenant's shards with an anatomy that is due, ascending."""
    row = AnatomyRow
    shard = row.fingerprint_id % shards
    query = select(shard).where(row.tenant_id == tenant_id, row.due_at <= now).distinct()
    return sorted(session.scalars(query))


def put_off(session: Writer, due: Due, until: datetime) -> None:
    """Have an anatomy that failed made later."""
    changed = update(AnatomyRow).where(AnatomyRow.fingerprint_id == due.fingerprint_id)
    values = {"due_at": until, "failures": due.failures + 1}
    session.execute(changed.values(values).execution_options(**_UNSYNCHRONIZED))


# --- what was found ---------------------------------------------------------------------------


def find_summaries(session: Reader, tenant_id: int, ids: Iterable[int]) -> dict[int, Summary]:
    """The last anatomies of some of a tenant's fingerprints, by their ids."""
    found = dict[int, Summary]()
    for some in _batches(ids):
        query = select(AnatomyRow).where(
            AnatomyRow.tenant_id == tenant_id,
            AnatomyRow.fingerprint_id.in_(some),
            AnatomyRow.verdict.is_not(None),
        )
        rows = session.scalars(query.execution_options(populate_existing=True))
        found.update((row.fingerprint_id, _summary(row)) for row in rows)
    return found


def kin_of(
    session: Reader,
    tenant_id: int,
    fingerprint_id: int,
    *,
    limit: int,
    offset: int = 0,
    verdicts: Collection[Verdict] = (),
    is_other: bool = False,
) -> list[Kin]:
    """The kin of a fingerprint, those with the least P first.

    Args:
        offset: how many are left out before.
        verdicts: only what it is so to; empty for all.
        is_other: whether to say what these are to it, and not what it is to these.
    """
    own = KinRow.other_id if is_other else KinRow.fingerprint_id
    last = KinRow.fingerprint_id if is_other else KinRow.other_id
    query = (
        select(KinRow)
        .where(KinRow.of(tenant_id), own == fingerprint_id)
        .order_by(KinRow.log10_p, KinRow.share.desc(), last)
        .limit(limit)
        .offset(offset)
    )
    if verdicts:
        query = query.where(KinRow.verdict.in_(verdicts))
    rows = session.scalars(query.execution_options(populate_existing=True))
    return [_kin(row) for row in rows]


def find_kin(
    session: Reader, tenant_id: int, ids: Collection[int], others: Collection[int]
) -> list[Kin]:
    """What some fingerprints are to some others, by their ids."""
    found = list[Kin]()
    for some in _batches(ids):
        for those in _batches(others):
            query = select(KinRow).where(
                KinRow.of(tenant_id),
                KinRow.fingerprint_id.in_(some),
                KinRow.other_id.in_(those),
            )
            rows = session.scalars(query.execution_options(populate_existing=True))
            found += [_kin(row) for row in rows]
    return sorted(found, key=lambda each: (each.fingerprint_id, each.other_id))


def put_kin(session: Writer, tenant_id: int, kin: Iterable[Kin]) -> None:
    """Store what pairs are to each other, in place of what was known of them."""
    ordered = sorted(kin, key=lambda each: (each.fingerprint_id, each.other_id))
    rows = [{**asdict(each), "tenant_id": tenant_id} for each in ordered]
    keys = {"fingerprint_id", "other_id", "tenant_id"}
    kept = tuple(name for name in Kin.__slots__ if name not in keys)
    _upsert(session, KinRow, rows, kept)


def delete_kin(session: Writer, fingerprint_id: int) -> None:
    """Forget all that a fingerprint was to others, and these to it."""
    own = or_(KinRow.fingerprint_id == fingerprint_id, KinRow.other_id == fingerprint_id)
    session.execute(delete(KinRow).where(own).execution_options(**_UNSYNCHRONIZED))


def part(
    session: Writer, tenant_id: int, fingerprint_id: int, others: Collection[int], now: datetime
) -> bool:
    """Forget what a fingerprint and some others were to each other; have theirs made again.

    Return whether anything was known.
    """
    known = {each.other_id for each in find_kin(session, tenant_id, [fingerprint_id], others)}
    if not known:
        return False
    pair = or_(
        and_(KinRow.fingerprint_id == fingerprint_id, KinRow.other_id.in_(known)),
        and_(KinRow.other_id == fingerprint_id, KinRow.fingerprint_id.in_(known)),
    )
    session.execute(delete(KinRow).where(pair).execution_options(**_UNSYNCHRONIZED))
    _mark(session, tenant_id, AnatomyRow.fingerprint_id.in_(known), now, None)
    return True


def put_summary(session: Writer, summary: Summary) -> None:
    """Store the anatomy of a fingerprint; it is due no longer."""
    changed = update(AnatomyRow).where(AnatomyRow.fingerprint_id == summary.fingerprint_id)
    values = {
        **{name: getattr(summary, name) for name in _PLAIN},
        "relations": [asdict(each) for each in summary.relations],
        "parents": list(summary.parents),
        "base_id": summary.base,
        "due_at": None,
        "hint": None,
        "is_changed": False,
        "failures": 0,
    }
    session.execute(changed.values(values).execution_options(**_UNSYNCHRONIZED))


_PLAIN: Final = (
    *("verdict", "first_share", "covered", "compared", "common", "truncated"),
    "made_at",
)
"""The columns of a summary that are its attributes."""


def _mark(session: Writer, tenant_id: int, condition: Any, now: datetime, hint: int | None) -> int:
    values = {"due_at": now} if hint is None else {"due_at": now, "hint": hint}
    marked = update(AnatomyRow).where(AnatomyRow.tenant_id == tenant_id, condition).values(values)
    done = session.execute(marked.execution_options(**_UNSYNCHRONIZED))
    return cast(CursorResult[Any], done).rowcount


def _late(before: datetime) -> Any:
    return AnatomyRow.due_at < before


def _upsert(
    session: Writer,
    rows: type[Base],
    values: Sequence[Mapping[str, Any]],
    kept: tuple[str, ...],
) -> None:
    """Insert rows; of those that exist set the columns in ``kept``."""
    if values:
        statement = _upserting(rows, session.get_bind().dialect.name, tuple(values[0]), kept)
        session.connection().execute(statement, list(values))


@cache  # to build a statement takes longer than to carry it out
def _upserting(
    rows: type[Base], dialect: str, columns: tuple[str, ...], kept: tuple[str, ...]
) -> Insert:
    table = table_of(rows)
    insert: Any = (postgresql if dialect == "postgresql" else sqlite).insert(table)
    made = insert.values({name: bindparam(name) for name in columns})
    statement: Insert = made.on_conflict_do_update(
        index_elements=[column.name for column in table.primary_key],
        set_={name: made.excluded[name] for name in kept},
    )
    return statement


def _batches(ids: Iterable[int]) -> Iterable[list[int]]:
    wanted = sorted(set(ids))
    return (wanted[at : at + _PER_STATEMENT] for at in range(0, len(wanted), _PER_STATEMENT))


def _summary(row: AnatomyRow) -> Summary:
    assert row.made_at is not None
    return Summary(
        fingerprint_id=row.fingerprint_id,
        verdict=cast(AnatomyVerdict, row.verdict),
        relations=tuple(
            Relation(each["relation"], tuple(each["models"]), each["sentence"])
            for each in row.relations or ()
        ),
        parents=tuple(row.parents or ()),
        first_share=row.first_share,
        covered=row.covered,
        compared=row.compared,
        common=row.common,
        truncated=row.truncated,
        base=row.base_id,
        is_due=row.due_at is not None,
        made_at=row.made_at,
    )


def _kin(row: KinRow) -> Kin:
    return Kin(**{name: getattr(row, name) for name in Kin.__slots__})
