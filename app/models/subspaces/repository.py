"""Queries for data subspaces, which are stored where signatures are."""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import func, select

from app.infra.db.database import Reader
from app.infra.db.tables.catalog import ModelRow, SignatureRow

__all__ = ["changed_since", "stored_bytes"]

_ROWS_PER_FETCH = 500


def changed_since(session: Reader, space_id: int, version: int) -> Iterator[tuple[int, bytes]]:
    """The ids and subspaces of the models that changed after ``version``, each once."""
    query = (
        select(ModelRow.id, SignatureRow.values)
        .join(SignatureRow, SignatureRow.model_id == ModelRow.id)
        .where(ModelRow.space_id == space_id, ModelRow.version > version)
        .execution_options(yield_per=_ROWS_PER_FETCH)
    )
    for row in session.execute(query):
        yield row[0], row[1]


def stored_bytes(session: Reader, space_id: int) -> int:
    """The bytes of all subspaces of a space."""
    query = (
        select(func.sum(func.length(SignatureRow.values)))
        .join(ModelRow, ModelRow.id == SignatureRow.model_id)
        .where(ModelRow.space_id == space_id)
    )
    return session.scalar(query) or 0
