"""Queries about what was read of a source's models for their fingerprints, and what is to be read.

A model without a state is to be read. So nothing is lost with a process that dies: the state is
written in the transaction that stores the fingerprint.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Literal

from sqlalchemy import ColumnElement, func, or_, select, update

from app.hubs.records import UNREAD, FingerprintCounts, SourceRecord
from app.hubs.repositories.sources import source_records
from app.infra.db.database import Reader, Writer
from app.infra.db.tables.hubs import SourceModelRow, SourceRow

__all__ = [
    "FingerprintState",
    "any_due",
    "counts",
    "due",
    "has_any",
    "keep",
    "note_asked",
    "note_changes",
    "put_off",
    "outdate",
    "read_states",
    "reset",
    "set_state",
    "waiting",
]

_BATCH_SIZE = 500


@dataclass(frozen=True, slots=True)
class FingerprintState:
    """What a sync has found that read a model for its fingerprint.

    Attributes:
        recipe: a digest that is the same for the same fingerprint.
        model: the name of the model here.
        reason: why it has none; None where it has one.
    """

    recipe: str
    model: str
    reason: str | None = None


State = Literal["read", "none"]
States = Mapping[str | None, FingerprintState]
"""What was found by component; None is the model itself."""


def read_states(session: Reader, source_id: str, name: str) -> dict[str | None, FingerprintState]:
    """What was found of a hub's model, and of its components."""
    row = session.get(SourceModelRow, (source_id, name), populate_existing=True)
    found = {} if row is None else row.fingerprints or {}
    return {part or None: FingerprintState(**state) for part, state in found.items()}


def has_any(session: Reader, source_id: str, name: str) -> bool:
    """Whether a fingerprint of a hub's model, or of a component, is stored."""
    states = read_states(session, source_id, name).values()
    return any(state.reason is None for state in states)


def keep(session: Writer, source_id: str, name: str, found: States, *, whole: bool) -> None:
    """Record what was found of a model; the caller has locked it.

    Args:
        whole: whether nothing more is to be read; otherwise the model stays to be read again.
    """
    has_one = any(state.reason is None for state in found.values())
    _write(
        session,
        source_id,
        name,
        fingerprints={part or "": asdict(state) for part, state in found.items()} or None,
        fingerprint_state=("read" if has_one else "none") if whole else None,
        fingerprint_asked_at=None,
    )


def set_state(session: Writer, source_id: str, name: str, state: State | None) -> None:
    """Record whether a model was read; None where it is to be read."""
    _write(session, source_id, name, fingerprint_state=state)


def reset(session: Writer, tenant_id: int, model: str) -> None:
    """Let the models be read again whose reading made a name's fingerprint, and lock them.

    A sync locks its model before the feed of fingerprints, and so must the caller.
    """
    parts = model.split("/")
    names = ["/".join(parts[:end]) for end in range(1, len(parts) + 1)]  # it may be a component
    row = SourceModelRow
    sources = select(SourceRow.id).where(SourceRow.tenant_id == tenant_id)
    query = (
        select(row)
        .where(row.source_id.in_(sources), row.name.in_(names))
        .order_by(row.source_id, row.name)
        .with_for_update()
        .execution_options(populate_existing=True)
    )
    for found in session.scalars(query):
        states = [FingerprintState(**state) for state in (found.fingerprints or {}).values()]
        if any(state.model == model and state.reason is None for state in states):
            found.fingerprint_state = found.fingerprint_asked_at = None
    session.flush()


def outdate(session: Writer, source_id: str, name: str, recipes: Mapping[str | None, str]) -> None:
    """Record that a model whose fingerprint nobody asks for is to be read, once somebody does.

    Args:
        recipes: those of its present content, by component.
    """
    found = read_states(session, source_id, name)
    if {part: state.recipe for part, state in found.items()} != recipes:
        set_state(session, source_id, name, None)


def note_changes(session: Writer, source_id: str, moments: Mapping[str, datetime]) -> None:
    """Record when models were changed last on the hub, by their names."""
    for name in sorted(moments):
        _write(session, source_id, name, hub_changed_at=moments[name])


# --- what is to be read ---------------------------------------------------------------------------


def waiting(
    session: Reader, source_id: str, before: datetime, *, limit: int
) -> tuple[list[str], int]:
    """The models that are to be read and were not asked for, the last changed on the hub first.

    Args:
        before: a model that was asked for before this moment, and is still to be read, may be
            asked for again.

    Returns:
        Their names, ``limit`` at most; and how many others were asked for since.
    """
    row = SourceModelRow
    asked = row.fingerprint_asked_at
    query = select(row.name).where(_waits(), row.source_id == source_id)
    newest = func.coalesce(row.hub_changed_at, row.synced_at).desc()
    names = session.scalars(
        query.where(or_(asked.is_(None), asked < before))
        .order_by(asked.is_not(None), newest.nulls_last(), row.name)
        .limit(limit)
    )
    running = select(func.count()).where(_waits(), row.source_id == source_id, asked >= before)
    return list(names), session.scalars(running).one()


def note_asked(session: Writer, source_id: str, names: Sequence[str], now: datetime) -> None:
    """Record that models were asked for."""
    for begin in range(0, len(names), _BATCH_SIZE):
        session.execute(
            update(SourceModelRow)
            .where(
                SourceModelRow.source_id == source_id,
                SourceModelRow.name.in_(names[begin : begin + _BATCH_SIZE]),
            )
            .values(fingerprint_asked_at=now)
            .execution_options(synchronize_session=False)
        )


def counts(session: Reader, source_ids: Sequence[str]) -> dict[str, FingerprintCounts]:
    """How many models of each source were read, and wait."""
    row = SourceModelRow
    unread = func.count().filter(row.error["code"].as_string() == UNREAD)
    query = (
        select(row.source_id, row.fingerprint_state, func.count(), unread)
        .where(row.source_id.in_(source_ids), row.revision.is_not(None))
        .group_by(row.source_id, row.fingerprint_state)
    )
    found = {source_id: Counter[str | None]() for source_id in source_ids}
    for source_id, state, count, of_them in session.execute(query):
        found[source_id][state] = count
        found[source_id][UNREAD] += of_them
    return {
        source_id: FingerprintCounts(each["read"], each["none"], each[None], each[UNREAD])
        for source_id, each in found.items()
    }


# --- when it is read ------------------------------------------------------------------------------


def any_due(session: Reader, now: datetime) -> bool:
    """Whether the models of a source may be asked for."""
    return session.scalar(select(SourceRow.id).where(_is_due(now)).limit(1)) is not None


def due(session: Writer, now: datetime, *, limit: int) -> list[SourceRecord]:
    """Lock and return sources whose models may be asked for; skip locked ones."""
    return source_records(session, _is_due(now), SourceRow.next_backfill_at, limit)


def put_off(session: Writer, source_id: str, until: datetime) -> None:
    """Let no model of a source be asked for until a moment."""
    session.execute(
        update(SourceRow).where(SourceRow.id == source_id).values(next_backfill_at=until)
    )


def _is_due(now: datetime) -> ColumnElement[bool]:
    return SourceRow.fingerprints.is_(True) & (SourceRow.next_backfill_at <= now)


def _waits() -> ColumnElement[bool]:
    row = SourceModelRow
    return row.fingerprint_state.is_(None) & row.revision.is_not(None)


def _write(session: Writer, source_id: str, name: str, **values: Any) -> None:
    session.execute(
        update(SourceModelRow)
        .where(SourceModelRow.source_id == source_id, SourceModelRow.name == name)
        .values(**values)
        .execution_options(synchronize_session=False)
    )
