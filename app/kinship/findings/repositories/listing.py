"""Queries that read kept findings: pages, totals, and the newest of all spaces."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import fields
from typing import Any, Final

from sqlalchemy import ColumnElement, and_, func, literal, select, true

from app.infra.db.database import Reader
from app.infra.db.pagination import decode_pair_cursor, encode_cursor
from app.infra.db.tables.catalog import ModelRow, SpaceRow
from app.infra.db.tables.findings import AcknowledgementRow, FindingRow
from app.kinship.findings.records import (
    RANKS,
    UNJUDGED,
    VERDICTS,
    FindingPage,
    InboxFinding,
    Totals,
)
from app.kinship.findings.repositories.acknowledgements import acknowledgement_of
from app.kinship.findings.repositories.findings import IS_DUE
from app.models.catalog.repositories.bases import declares_any
from app.models.spaces.records import SpaceRecord
from app.models.spaces.repositories.spaces import exists
from modelkin.core.kinship.lineage import LineageVerdict
from modelkin.types.reports.audits import LineageFinding

__all__ = [
    "contradicted",
    "count_open",
    "find_kept",
    "list_findings",
    "newest_open",
    "totals_of",
]

_FIELDS: Final = {each.name for each in fields(LineageFinding)}
_LAST_RANK: Final = max(VERDICTS)


def list_findings(
    session: Reader,
    space: SpaceRecord,
    *,
    limit: int,
    cursor: str | None,
    verdicts: Collection[LineageVerdict] = (),
    base_model: str | None = None,
    acknowledged: bool | None = None,
) -> FindingPage:
    """The findings of a space in the order of what matters, those of a verdict by name.

    Args:
        acknowledged: only those that are acknowledged, or are not; None for all.
    """
    at, name = (0, "") if cursor is None else decode_pair_cursor(cursor)
    wanted = sorted(RANKS[each] for each in (verdicts or RANKS))
    found = list[LineageFinding]()
    for rank in (rank for rank in wanted if rank >= at):
        after = name if cursor is not None and rank == at else ""
        left = limit + 1 - len(found)
        found += _of_rank(session, space, rank, after, left, base_model, acknowledged)
        if len(found) > limit:
            break
    page, following = tuple(found[:limit]), None
    if len(found) > limit:
        last = page[-1]
        following = encode_cursor(f"{RANKS[last.verdict]} {last.model}")
    return FindingPage(page, following, totals_of(session, space, base_model))


def totals_of(session: Reader, space: SpaceRecord, base_model: str | None = None) -> Totals:
    """How many findings a space has, by verdict."""
    row = FindingRow
    query = select(row.rank, row.is_acknowledged, func.count()).where(*_in(space, base_model))
    found = dict.fromkeys(RANKS, 0)
    acknowledged, pending = dict.fromkeys(RANKS, 0), 0
    for rank, is_acknowledged, count in session.execute(
        query.group_by(row.rank, row.is_acknowledged)
    ):
        if rank == UNJUDGED:
            pending += count
        elif rank in VERDICTS:
            found[VERDICTS[rank]] += count
            acknowledged[VERDICTS[rank]] += count if is_acknowledged else 0
    # A sum is in no index: SQLite would read all of a space by rank, and not the few that are due.
    due = select(func.count()).where(row.space_id == space.id, IS_DUE, row.rank + 0 < UNJUDGED)
    return Totals(found, acknowledged, pending, session.scalars(due).one())


def find_kept(session: Reader, space: SpaceRecord, model_id: int) -> LineageFinding | None:
    """The kept finding of a model; None where there is none, or nothing to say."""
    here = _kept().where(FindingRow.space_id == space.id, FindingRow.model_id == model_id)
    row = session.execute(here.where(FindingRow.rank <= _LAST_RANK)).one_or_none()
    return None if row is None else _record(row)


def contradicted(session: Reader, space: SpaceRecord, names: Collection[str]) -> dict[str, str]:
    """The declared base of each of these models that is contradicted, by the model's name."""
    row = FindingRow
    query = select(row.name, row.base).where(
        row.space_id == space.id, row.rank == RANKS["mismatch"], row.name.in_(names)
    )
    return {name: base for name, base in session.execute(query) if base is not None}


def count_open(session: Reader, tenant_id: int, verdict: LineageVerdict, most: int) -> int:
    """The number of findings of all spaces that are not acknowledged, at most ``most``."""
    some = select(literal(1)).where(*_open(tenant_id), *_asking(verdict))
    return session.scalars(select(func.count()).select_from(some.limit(most).subquery())).one()


def newest_open(
    session: Reader, tenant_id: int, verdict: LineageVerdict, limit: int
) -> tuple[InboxFinding, ...]:
    """The newest findings of a verdict in all spaces of a tenant that are not acknowledged."""
    row = FindingRow
    query = (
        select(SpaceRow.name.label("space"), row.name, row.base, row.finding, row.found_at)
        .join(SpaceRow, SpaceRow.id == row.space_id)
        .where(*_open(tenant_id), *_asking(verdict), exists)
        .order_by(row.found_at.desc(), row.model_id)
        .limit(limit)
    )
    return tuple(
        InboxFinding(
            space=each.space,
            model=each.name,
            base=each.base,
            likely_base=each.finding["likely_base"],
            similarity=each.finding["similarity"],
            summary=each.finding["summary"],
            found_at=each.found_at,
        )
        for each in session.execute(query)
    )


def _asking(verdict: LineageVerdict) -> tuple[ColumnElement[bool], ...]:
    """The conditions of a verdict that asks for a look; a doubt does where a base is likely."""
    is_named = FindingRow.likely_id.is_not(None) if verdict == "inconclusive" else true()
    return FindingRow.rank == RANKS[verdict], is_named


def _of_rank(
    session: Reader,
    space: SpaceRecord,
    rank: int,
    after: str,
    limit: int,
    base_model: str | None,
    acknowledged: bool | None,
) -> Iterator[LineageFinding]:
    """The findings of a verdict by name: one stretch of an index."""
    row = FindingRow
    query = _kept().where(*_in(space, base_model), row.rank == rank, row.name > after)
    if acknowledged is not None:
        query = query.where(row.is_acknowledged.is_(acknowledged))
    return map(_record, session.execute(query.order_by(row.name).limit(limit)))


def _kept() -> Any:
    row, noted = FindingRow, AcknowledgementRow
    return select(
        *(row.name, row.finding, row.found_at, row.judged_at, row.is_acknowledged),
        *(noted.verdict, noted.base, noted.note, noted.made_by, noted.made_at),
    ).outerjoin(noted, and_(noted.model_id == row.model_id, row.is_acknowledged))


def _record(row: Any) -> LineageFinding:
    values = {name: value for name, value in row.finding.items() if name in _FIELDS}
    values |= {
        "model": row.name,
        "declared_bases": tuple(values["declared_bases"]),
        "found_at": row.found_at,
        "judged_at": row.judged_at,
        "acknowledgement": acknowledgement_of(row) if row.is_acknowledged else None,
    }
    return LineageFinding(**values)


def _in(space: SpaceRecord, base_model: str | None) -> list[ColumnElement[bool]]:
    """The conditions of a space's findings, and of those that declare a base."""
    here: list[ColumnElement[bool]] = [FindingRow.space_id == space.id]
    if base_model is not None:
        declaring = select(ModelRow.id).where(
            ModelRow.space_id == space.id, declares_any([base_model])
        )
        here.append(FindingRow.model_id.in_(declaring))
    return here


def _open(tenant_id: int) -> tuple[ColumnElement[bool], ...]:
    return FindingRow.tenant_id == tenant_id, FindingRow.is_acknowledged.is_(False)
