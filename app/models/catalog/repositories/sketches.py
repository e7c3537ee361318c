"""Queries for sketches that clients sent beside their signatures.

Sketches of supports are computed from the supports on demand, and are not stored here.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime

from sqlalchemy import delete, insert, select, update

from app.infra.db.database import Reader, Writer
from app.infra.db.tables.catalog import ModelRow, SketchRow
from app.models.catalog.records import ModelRecord

__all__ = [
    "change_sketch",
    "draw_content_id",
    "insert_sketches",
    "replace_sketches",
    "sketches_by_id",
]

_IDS_PER_STATEMENT = 500  # below every backend's limit of bound parameters


def sketches_by_id(session: Reader, ids: Iterable[int]) -> dict[int, bytes]:
    """The sent sketches in the native format, by model id."""
    wanted = list(ids)
    found: dict[int, bytes] = {}
    for at in range(0, len(wanted), _IDS_PER_STATEMENT):
        some = SketchRow.model_id.in_(wanted[at : at + _IDS_PER_STATEMENT])
        rows = session.execute(select(SketchRow.model_id, SketchRow.data).where(some))
        found.update((row.model_id, row.data) for row in rows)
    return found


def insert_sketches(session: Writer, sketches: Mapping[int, bytes | None]) -> None:
    """Insert the sketches that are given, for models without one."""
    rows = [{"model_id": i, "data": data} for i, data in sketches.items() if data is not None]
    if rows:
        session.execute(insert(SketchRow), rows)


def replace_sketches(session: Writer, sketches: Mapping[int, bytes | None]) -> None:
    """Replace the sketches of the models, or delete them."""
    wanted = list(sketches)
    for at in range(0, len(wanted), _IDS_PER_STATEMENT):
        some = SketchRow.model_id.in_(wanted[at : at + _IDS_PER_STATEMENT])
        session.execute(delete(SketchRow).where(some).execution_options(synchronize_session=False))
    insert_sketches(session, sketches)


def change_sketch(
    session: Writer, model: ModelRecord, sketch: bytes, *, version: int
) -> ModelRecord:
    """Set the sketch of a model; the caller holds the space's lock."""
    changed = replace(
        model, content_id=draw_content_id(), version=version, updated_at=datetime.now(UTC)
    )
    columns = {c: getattr(changed, c) for c in ("content_id", "version", "updated_at")}
    session.execute(
        update(ModelRow)
        .where(ModelRow.id == model.id)
        .values(**columns)
        .execution_options(synchronize_session=False)
    )
    replace_sketches(session, {model.id: sketch})
    return changed


def draw_content_id() -> int:
    """A new random id, from 1 on, for a content that has or can have a sketch."""
    return 1 + secrets.randbelow(2**63 - 1)
