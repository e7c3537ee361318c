"""Every query about sketches that clients sent beside their signatures.

Those of supports are made from the supports whenever they are wanted, and are not here.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime

from sqlalchemy import delete, insert, select, update

from app.catalog.records import ModelRecord
from app.infra.db.database import Reader, Writer
from app.infra.db.tables.catalog import ModelRow, SketchRow

__all__ = [
    "change_sketch",
    "drawn_content_id",
    "insert_sketches",
    "replace_sketches",
    "sketches_by_id",
]

_IDS_AT_ONCE = 500  # below every backend's limit of bound parameters


def sketches_by_id(session: Reader, ids: Iterable[int]) -> dict[int, bytes]:
    """Those of the models that sent a sketch: it in the native format, under the model's id."""
    wanted = list(ids)
    found: dict[int, bytes] = {}
    for at in range(0, len(wanted), _IDS_AT_ONCE):
        some = SketchRow.model_id.in_(wanted[at : at + _IDS_AT_ONCE])
        rows = session.execute(select(SketchRow.model_id, SketchRow.data).where(some))
        found.update((row.model_id, row.data) for row in rows)
    return found


def insert_sketches(session: Writer, sketches: Mapping[int, bytes | None]) -> None:
    """Keep the sketches, those that are not None, of models that have none."""
    rows = [{"model_id": i, "data": data} for i, data in sketches.items() if data is not None]
    if rows:
        session.execute(insert(SketchRow), rows)


def replace_sketches(session: Writer, sketches: Mapping[int, bytes | None]) -> None:
    """Let the models have these sketches from now on, or none."""
    wanted = list(sketches)
    for at in range(0, len(wanted), _IDS_AT_ONCE):
        some = SketchRow.model_id.in_(wanted[at : at + _IDS_AT_ONCE])
        session.execute(delete(SketchRow).where(some).execution_options(synchronize_session=False))
    insert_sketches(session, sketches)


def change_sketch(
    session: Writer, model: ModelRecord, sketch: bytes, *, version: int
) -> ModelRecord:
    """Let a model have this sketch from now on; the caller holds the space's lock."""
    changed = replace(
        model, content_id=drawn_content_id(), version=version, updated_at=datetime.now(UTC)
    )
    columns = {c: getattr(changed, c) for c in ("content_id", "version", "updated_at")}
    session.execute(
        update(ModelRow)
        .where(ModelRow.id == model.id)
        .values(**columns)
        .execution_options(synchronize_session=False)
    )
    replace_sketches(session, {model.id: sketch})
    session.expire_all()
    return changed


def drawn_content_id() -> int:
    """What marks a content of which there is, or can be, a sketch: any number from 1 on."""
    return 1 + secrets.randbelow(2**63 - 1)
