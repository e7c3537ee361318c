"""Queries that keep findings: what is due, and the verdicts as they are found.

Each model of a space has a row, which is made when its change is read, so a verdict that may have
changed is marked in the row, whoever judges the model at that moment.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any, Final

from sqlalchemy import ColumnElement, and_, bindparam, or_, select, update

from app.infra.db.database import Reader, Writer
from app.infra.db.tables.base import table_of
from app.infra.db.tables.catalog import ModelRow, SpaceRow
from app.infra.db.tables.findings import AcknowledgementRow, FindingRow
from app.kinship.findings.records import NOTHING_TO_SAY, Due, Made
from app.models.catalog.repositories import bases
from app.models.spaces.records import SpaceRecord

__all__ = [
    "IS_DUE",
    "ask",
    "ask_named",
    "ask_naming",
    "ask_where",
    "due_findings",
    "give_up",
    "ids_declaring",
    "is_any_due",
    "near_ids",
    "store",
]

_PER_STATEMENT: Final = 400
"""Values of one statement: below every backend's limit of bound parameters."""
_UNSYNCHRONIZED: Final = {"synchronize_session": False}
_BESIDE: Final = {"found_at", "judged_at", "acknowledgement"}
"""Fields of a finding that have columns of their own."""
IS_DUE: Final = FindingRow.asked > FindingRow.answered
"""The condition that a model has to be judged."""


def is_any_due(session: Reader, space: SpaceRecord) -> bool:
    """Whether a model of a space has to be judged."""
    query = select(FindingRow.model_id).where(FindingRow.space_id == space.id, IS_DUE)
    return session.scalar(query.limit(1)) is not None


def due_findings(
    session: Reader, space: SpaceRecord, *, limit: int, name: str | None = None
) -> list[Due]:
    """The models to judge, those without a verdict first, then those of the oldest.

    Args:
        name: only the model of this name; None for all.
    """
    query = (
        select(
            *(FindingRow.model_id, FindingRow.asked, FindingRow.state, FindingRow.rank),
            *(FindingRow.base, FindingRow.found_at, FindingRow.finding),
        )
        .where(FindingRow.space_id == space.id, IS_DUE)
        .order_by(FindingRow.judged_version, FindingRow.model_id)
        .limit(limit)
    )
    if name is not None:
        query = query.where(FindingRow.name == name)
    return [
        Due(
            model_id=row.model_id,
            asked=row.asked,
            state=row.state,
            rank=row.rank,
            base=row.base,
            found_at=row.found_at,
            declared_bases=() if row.finding is None else tuple(row.finding["declared_bases"]),
        )
        for row in session.execute(query)
    ]


def near_ids(session: Reader, space: SpaceRecord, made: Made) -> list[int]:
    """The models near a new one whose verdict it may change."""
    names = list(made.near)
    query = select(FindingRow.model_id, FindingRow.name, FindingRow.news_from).where(
        FindingRow.space_id == space.id, FindingRow.rank <= NOTHING_TO_SAY
    )
    return [
        row.model_id
        for some in _batches(names)
        for row in session.execute(query.where(FindingRow.name.in_(some)))
        if made.near[row.name] >= row.news_from
    ]


def ids_declaring(session: Reader, space: SpaceRecord, name: str) -> list[int]:
    """The ids of the models of a space that declare a base."""
    return bases.ids_declaring(session, space.id, [name])


def ask(session: Writer, ids: Iterable[int], *, before: int | None = None) -> None:
    """Have some models judged again.

    Args:
        before: leave out verdicts of this version of the space, and later ones.
    """
    for some in _batches(ids):
        ask_where(session, FindingRow.model_id.in_(some), before)


def ask_naming(session: Writer, ids: Iterable[int], *, before: int | None = None) -> None:
    """Have the models judged again whose verdict names one of some models.

    Args:
        before: as in :func:`ask`.
    """
    for some in _batches(ids):
        naming = (FindingRow.nearest_id, FindingRow.likely_id, FindingRow.base_id)
        ask_where(session, or_(*(column.in_(some) for column in naming)), before)


def ask_named(session: Writer, tenant_id: int, name: str, *, are_bases: bool, limit: int) -> None:
    """Have a tenant's models of a name judged again, in all spaces.

    Args:
        are_bases: whether models that declare the name are, too.
        limit: the most models.
    """
    wanted = ModelRow.name == name
    if are_bases:
        wanted |= bases.declares_any([name])
    own = select(SpaceRow.id).where(SpaceRow.tenant_id == tenant_id)
    query = select(ModelRow.id).where(ModelRow.space_id.in_(own), wanted)
    ask(session, session.scalars(query.order_by(ModelRow.id).limit(limit)))


def ask_where(session: Writer, condition: ColumnElement[bool], before: int | None = None) -> None:
    """Have the models judged again that meet a condition.

    Args:
        before: as in :func:`ask`.
    """
    if before is not None:
        condition = and_(condition, FindingRow.judged_version < before)
    session.execute(
        update(FindingRow)
        .where(condition)
        .values(asked=FindingRow.asked + 1)
        .execution_options(**_UNSYNCHRONIZED)
    )


def store(session: Writer, made: Sequence[tuple[Due, Made]], version: int, now: datetime) -> None:
    """Keep verdicts, unless later ones are kept already.

    Args:
        version: that of the space when the models were judged.
    """
    if not made:
        return
    acknowledged = _acknowledged(session, [each.model_id for _, each in made])
    table = table_of(FindingRow)
    columns = (
        *("rank", "base", "finding", "base_id", "nearest_id", "likely_id", "news_from"),
        *("state", "answered", "judged_version", "judged_at", "found_at", "is_acknowledged"),
    )
    statement = (
        update(table)
        .where(table.c.model_id == bindparam("of"), table.c.judged_version <= bindparam("version"))
        .values({name: bindparam(f"new_{name}") for name in columns})
    )
    session.connection().execute(
        statement,
        [
            {"of": each.model_id, "version": version}
            | {
                f"new_{name}": value
                for name, value in _values(due, each, version, now, acknowledged).items()
            }
            for due, each in made
        ],
    )


def give_up(session: Writer, due: Iterable[Due]) -> None:
    """Have models wait for a further change that could not be judged."""
    for each in due:
        session.execute(
            update(FindingRow)
            .where(FindingRow.model_id == each.model_id)
            .values(answered=each.asked)
            .execution_options(**_UNSYNCHRONIZED)
        )


def _values(
    due: Due,
    made: Made,
    version: int,
    now: datetime,
    acknowledged: Mapping[int, tuple[str, str | None]],
) -> dict[str, Any]:
    is_same = (due.rank, due.base) == (made.rank, made.base) and due.found_at is not None
    return {
        "rank": made.rank,
        "base": made.base,
        "finding": {k: v for k, v in asdict(made.finding).items() if k not in _BESIDE},
        "base_id": made.base_id,
        "nearest_id": made.nearest_id,
        "likely_id": made.likely_id,
        "news_from": made.news_from,
        "state": made.state,
        "answered": due.asked,
        "judged_version": version,
        "judged_at": now,
        "found_at": due.found_at if is_same else now,
        "is_acknowledged": acknowledged.get(made.model_id) == (made.finding.verdict, made.base),
    }


def _acknowledged(session: Reader, ids: Iterable[int]) -> dict[int, tuple[str, str | None]]:
    """What was acknowledged of some models: a verdict and its base, by model."""
    row = AcknowledgementRow
    query = select(row.model_id, row.verdict, row.base)
    return {
        model_id: (verdict, base)
        for some in _batches(ids)
        for model_id, verdict, base in session.execute(query.where(row.model_id.in_(some)))
    }


def _batches(items: Iterable[Any]) -> Iterator[list[Any]]:
    wanted = sorted(set(items))
    return (wanted[at : at + _PER_STATEMENT] for at in range(0, len(wanted), _PER_STATEMENT))
