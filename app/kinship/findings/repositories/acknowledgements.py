"""Queries for what was acknowledged."""

from __future__ import annotations

from typing import Any, cast

from sqlalchemy import CursorResult, delete, insert, update

from app.infra.db.database import Writer
from app.infra.db.tables.base import table_of
from app.infra.db.tables.findings import AcknowledgementRow, FindingRow
from app.models.spaces.records import SpaceRecord
from modelkin.core.kinship.lineage import LineageVerdict
from modelkin.types.reports.audits import Acknowledgement

__all__ = [
    "acknowledgement_of",
    "delete_acknowledgement",
    "put_acknowledgement",
]


def acknowledgement_of(row: Any) -> Acknowledgement:
    """What a row says was acknowledged."""
    return Acknowledgement(
        verdict=cast(LineageVerdict, row.verdict),
        base=row.base,
        note=row.note,
        made_by=row.made_by,
        made_at=row.made_at,
    )


def put_acknowledgement(
    session: Writer, space: SpaceRecord, model_id: int, made: Acknowledgement
) -> None:
    """Acknowledge the finding of a model, in place of what was acknowledged before."""
    table = table_of(AcknowledgementRow)
    session.execute(delete(table).where(table.c.model_id == model_id))
    session.execute(
        insert(table).values(
            model_id=model_id,
            tenant_id=space.tenant_id,
            verdict=made.verdict,
            base=made.base,
            note=made.note,
            made_by=made.made_by,
            made_at=made.made_at,
        )
    )
    _mark(session, model_id, is_acknowledged=True)


def delete_acknowledgement(session: Writer, model_id: int) -> bool:
    """Forget what was acknowledged of a model; whether there was anything."""
    row = AcknowledgementRow
    done = session.execute(delete(row).where(row.model_id == model_id))
    _mark(session, model_id, is_acknowledged=False)
    return cast("CursorResult[None]", done).rowcount > 0


def _mark(session: Writer, model_id: int, *, is_acknowledged: bool) -> None:
    session.execute(
        update(FindingRow)
        .where(FindingRow.model_id == model_id)
        .values(is_acknowledged=is_acknowledged)
        .execution_options(synchronize_session=False)
    )
