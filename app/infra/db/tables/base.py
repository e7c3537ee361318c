"""The base of all tables. One convention names all constraints, so migrations can name them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, cast

from sqlalchemy import (
    BigInteger,
    DateTime,
    Dialect,
    Integer,
    MetaData,
    String,
    Table,
    TypeDecorator,
    text,
)
from sqlalchemy.orm import DeclarativeBase

__all__ = ["Base", "table_of", "where"]

# Names sort by code point on both databases: SQLite by default, Postgres with this collation.
Name = String().with_variant(String(collation="C"), "postgresql")
# SQLite gives automatic ids to INTEGER keys only.
Id = BigInteger().with_variant(Integer(), "sqlite")


def where(condition: str) -> dict[str, Any]:
    """The options of a partial index over the rows that meet a condition."""
    return {"sqlite_where": text(condition), "postgresql_where": text(condition)}


class Moment(TypeDecorator[datetime]):
    """A point in time, always UTC; SQLite stores no zone, so results get it here."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        del dialect
        if value is not None and value.tzinfo is None:
            raise ValueError(f"{value} has no zone: it would be taken for local time")
        return value if value is None or value.tzinfo is UTC else value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        del dialect
        return None if value is None else value.replace(tzinfo=value.tzinfo or UTC)


class Base(DeclarativeBase):
    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s",
            "pk": "pk_%(table_name)s",
        }
    )


def table_of(rows: type[Base]) -> Table:
    """The table of a class, for statements past the ORM, which prepares each row once more."""
    return cast(Table, rows.__table__)
