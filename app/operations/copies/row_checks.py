"""Checks of rows against each other: counts, foreign keys, and blobs that two models name."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from sqlalchemy import ForeignKeyConstraint, Table, and_, delete, func, select

from app.infra.db.database import Database
from app.infra.db.tables.all_tables import Base
from app.infra.db.tables.catalog import ModelRow, RevisionRow
from app.models.spaces.records import SpaceRecord
from app.models.spaces.repositories import spaces
from app.operations.copies import repository
from app.operations.copies.records import Finding, name_of
from app.operations.copies.repairs import Repairs

__all__ = ["RowChecks"]


class RowChecks:
    """Checks rows against each other, each in one snapshot of the database."""

    def __init__(self, database: Database, repairs: Repairs) -> None:
        self._database = database
        self._repairs = repairs

    def findings(self) -> Iterator[Finding]:
        """Yield all findings of these checks."""
        for table in Base.metadata.sorted_tables:
            for key in sorted(table.foreign_key_constraints, key=lambda key: str(key.name)):
                yield from self._foreign_key(table, key)
        yield from self._shared_blobs()
        with self._database.reading() as session:
            existing = spaces.all_spaces(session)
        for space in existing:
            yield from self._counts(space)

    def _foreign_key(self, table: Table, key: ForeignKeyConstraint) -> Iterator[Finding]:
        with self._database.reading() as session:
            lost = _lost_rows(key)
            count = session.scalars(select(func.count()).select_from(table).where(lost)).one()
        if count:
            parent = key.referred_table.name
            yield Finding(
                f"table {table.name}",
                f"{count} rows name {parent} that do not exist ({', '.join(key.column_keys)})",
                partial(self._delete, table, key) if key.ondelete == "CASCADE" else None,
            )

    def _delete(self, table: Table, key: ForeignKeyConstraint) -> None:
        """Delete what the database deletes together with the row that is missing."""
        with self._database.writing() as session:
            session.execute(delete(table).where(_lost_rows(key)))

    def _shared_blobs(self) -> Iterator[Finding]:
        """Blobs that more than one model names: deleting one would take the other's."""
        query = select(ModelRow.blob_key).where(ModelRow.blob_key.is_not(None))
        twice = query.group_by(ModelRow.blob_key).having(func.count() > 1)
        past = (
            select(RevisionRow.blob_key)
            .join(ModelRow, ModelRow.blob_key == RevisionRow.blob_key)
            .where(ModelRow.id != RevisionRow.model_id)
        )
        with self._database.reading() as session:
            shared = {*session.scalars(twice), *session.scalars(past)}
        for key in sorted(filter(None, shared)):
            yield Finding(f"file {key}", "several models name it: delete all but one, or put again")

    def _counts(self, space: SpaceRecord) -> Iterator[Finding]:
        with self._database.reading() as session:
            counts = repository.space_counts(session, space.id)
        if counts is not None and counts[0] != counts[1]:
            noted, counted = counts
            yield Finding(
                name_of(space),
                f"its row counts {noted.supports} supports, {noted.signatures} signatures and "
                f"{noted.support_bytes} bytes, and it has {counted.supports}, {counted.signatures} "
                f"and {counted.support_bytes}",
                partial(self._repairs.count_again, space),
            )


def _lost_rows(key: ForeignKeyConstraint) -> Any:
    """The condition of rows whose foreign key names no row."""
    parent = key.referred_table.alias()
    pairs = [(element.parent, parent.c[element.column.name]) for element in key.elements]
    found = select(parent).where(*(ours == theirs for ours, theirs in pairs)).exists()
    return and_(*(ours.is_not(None) for ours, _ in pairs), ~found)
