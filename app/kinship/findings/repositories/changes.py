"""Queries that follow the changes of a space, and mark the findings that they may change.

The table of models, read from a version on, is its change log; removals leave tombstones beside it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Select, and_, func, insert, or_, select, union, update
from sqlalchemy.dialects import postgresql, sqlite

from app.infra.db.database import Reader, Writer
from app.infra.db.tables.base import table_of
from app.infra.db.tables.catalog import ModelRow, SpaceRow, TombstoneRow
from app.infra.db.tables.findings import AuditRow, FindingRow
from app.kinship.findings.records import UNJUDGED
from app.kinship.findings.repositories.findings import IS_DUE, ask, ask_naming, ask_where
from app.models.catalog.records import ModelRecord
from app.models.catalog.repositories import bases
from app.models.spaces.records import SpaceRecord
from app.models.spaces.repositories.spaces import exists

__all__ = ["audited_version", "follow", "is_behind", "spaces_behind", "state_of"]

_CHANGES: Final = 1000
"""Changed models that one transaction reads."""
_UNSYNCHRONIZED: Final = {"synchronize_session": False}


def spaces_behind(session: Reader) -> dict[int, int]:
    """The spaces of every tenant with something to judge, each with its version."""
    return {row.id: row.version for row in session.execute(_behind())}


def is_behind(session: Reader, tenant_id: int) -> bool:
    """Whether a space of a tenant has something to judge."""
    query = _behind().where(SpaceRow.tenant_id == tenant_id)
    return session.execute(query.limit(1)).first() is not None


def _behind() -> Select[int, int]:
    changed = (
        select(SpaceRow.id)
        .outerjoin(AuditRow, AuditRow.space_id == SpaceRow.id)
        .where(SpaceRow.version > func.coalesce(AuditRow.version, 0))
    )
    due = select(FindingRow.space_id).where(IS_DUE)
    either = union(changed, due).subquery()
    return select(SpaceRow.id, SpaceRow.version).where(
        SpaceRow.id.in_(select(either.c[0])), exists, SpaceRow.subspaces.is_(None)
    )


def audited_version(session: Reader, space: SpaceRecord) -> int:
    """The version up to which the findings of a space follow its changes."""
    query = select(AuditRow.version).where(AuditRow.space_id == space.id)
    return session.scalar(query) or 0


def follow(session: Writer, space: SpaceRecord, small: int) -> bool:
    """Read the next changes of a space, and mark what they may change; whether others follow.

    Args:
        small: the size up to which any change has all models of a space judged again.
    """
    version, models = _lock_audit(session, space)
    until, count, compacted = _space_now(session, space)
    if until <= version:
        return False
    changed = _changed(session, space, version)
    if len(changed) == _CHANGES:
        until = changed[-1].version
    new = [row for row in changed if row.known is None]
    _insert(session, space, new)
    other = [row for row in changed if row.known is not None and row.state != _state(row)]
    _rename(session, space, [row for row in other if row.known != row.name])
    ask(session, [row.id for row in other])
    gone = _removed(session, space, version, until)
    if gone:
        ask_naming(session, gone)
        _ask_merges(session, space)
    if version and compacted > version:
        _ask_orphans(session, space)
    is_news = bool(new or other or gone) and count <= small
    if is_news or count >= 2 * models or 2 * count <= models:
        ask_where(session, FindingRow.space_id == space.id, until)
        models = count
    session.execute(
        update(AuditRow)
        .where(AuditRow.space_id == space.id)
        .values(version=until, models=models)
        .execution_options(**_UNSYNCHRONIZED)
    )
    return len(changed) == _CHANGES


def state_of(model: ModelRecord) -> str:
    """A digest of what a verdict takes from its model alone."""
    declared = [*model.bases, model.base_relation]
    return _digest(model.name, model.revision, model.content_id, declared)


def _state(row: Any) -> str:
    named = (row.base_models or ()) if row.base_model is None else (row.base_model,)
    return _digest(row.name, row.revision, row.content_id, [*named, row.base_relation])


def _digest(*parts: object) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def _lock_audit(session: Writer, space: SpaceRecord) -> tuple[int, int]:
    """The version and the number of models that an audit has, locked; it is made if need be."""
    dialect: Any = postgresql if session.get_bind().dialect.name == "postgresql" else sqlite
    made = dialect.insert(table_of(AuditRow)).values(
        space_id=space.id, tenant_id=space.tenant_id, version=0, models=0
    )
    session.execute(made.on_conflict_do_nothing(index_elements=["space_id"]))
    query = select(AuditRow.version, AuditRow.models).where(AuditRow.space_id == space.id)
    row = session.execute(query.with_for_update()).one()
    return row.version, row.models


def _space_now(session: Reader, space: SpaceRecord) -> tuple[int, int, int]:
    """A space's version, its number of models, and up to where its tombstones are gone."""
    models = SpaceRow.supports + SpaceRow.signatures
    query = select(SpaceRow.version, models, SpaceRow.compacted_version)
    found = session.execute(query.where(SpaceRow.id == space.id)).one_or_none()
    return (0, 0, 0) if found is None else (found[0], found[1], found[2])


def _changed(session: Reader, space: SpaceRecord, version: int) -> list[Any]:
    """The next models that changed after a version, by version, and what is kept of them."""
    query = (
        select(
            *(ModelRow.id, ModelRow.name, ModelRow.revision, ModelRow.content_id),
            *(ModelRow.base_model, ModelRow.base_models, ModelRow.base_relation),
            *(ModelRow.version, FindingRow.name.label("known"), FindingRow.state),
        )
        .outerjoin(FindingRow, FindingRow.model_id == ModelRow.id)
        .where(ModelRow.space_id == space.id, ModelRow.version > version)
        .order_by(ModelRow.version)
        .limit(_CHANGES)
    )
    return list(session.execute(query))


def _insert(session: Writer, space: SpaceRecord, rows: Sequence[Any]) -> None:
    if rows:
        session.connection().execute(
            insert(table_of(FindingRow)),
            [
                {
                    "model_id": row.id,
                    "tenant_id": space.tenant_id,
                    "space_id": space.id,
                    "name": row.name,
                    "rank": UNJUDGED,
                    "asked": 1,
                    "answered": 0,
                    "news_from": 0.0,
                    "judged_version": 0,
                    "is_acknowledged": False,
                }
                for row in rows
            ],
        )


def _rename(session: Writer, space: SpaceRecord, rows: Sequence[Any]) -> None:
    """Give findings the new names of their models, which others may declare as their base."""
    for row in rows:
        session.execute(
            update(FindingRow)
            .where(FindingRow.model_id == row.id)
            .values(name=row.name)
            .execution_options(**_UNSYNCHRONIZED)
        )
    names = [name for row in rows for name in (row.known, row.name)]
    if names:
        ask(session, bases.ids_declaring(session, space.id, names))


def _removed(session: Reader, space: SpaceRecord, version: int, until: int) -> list[int]:
    removed = (
        TombstoneRow.space_id == space.id,
        TombstoneRow.version > version,
        TombstoneRow.version <= until,
    )
    return list(session.scalars(select(TombstoneRow.model_id).where(*removed)))


def _ask_merges(session: Writer, space: SpaceRecord) -> None:
    """Have the models of several bases judged again: a finding has the id of one base alone."""
    several = select(ModelRow.id).where(
        ModelRow.space_id == space.id, ModelRow.base_models.is_not(None)
    )
    ask_where(session, FindingRow.model_id.in_(several))


def _ask_orphans(session: Writer, space: SpaceRecord) -> None:
    """Have the models judged again that name a model which is gone without a trace."""
    present = select(ModelRow.id).where(ModelRow.space_id == space.id)
    naming = (FindingRow.nearest_id, FindingRow.likely_id, FindingRow.base_id)
    gone = or_(*(and_(each.is_not(None), each.not_in(present)) for each in naming))
    ask_where(session, and_(FindingRow.space_id == space.id, gone))
