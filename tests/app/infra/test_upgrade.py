"""A database of version 0.1.0 and this one: the same tables, and what it had and this has not."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import text

from app.errors import Unavailable
from app.infra.db.database import Database
from app.infra.db.migrations import migrate, standing_of
from tests.support.backends import Backend
from tests.support.schema_lines import schema_lines

RECORDED = Path(__file__).parent / "recorded"
"""What the migrations that 0.1.0 was released with have made, as lines."""


def test_the_schema_of_0_1_0_is_what_its_own_migrations_made(
    database: Database, backend: Backend
) -> None:
    """Columns, types, defaults, keys, checks, indexes, and what Postgres' catalog says of them."""
    migrate(database, revision="0026")
    with database.reading() as session:
        found = schema_lines(session.connection())
    recorded = (RECORDED / f"schema-{backend.name}-0.1.0.txt").read_text().splitlines()
    assert recorded == found


def test_a_database_from_before_0_1_0_is_refused_in_a_line(database: Database) -> None:
    """With the version that upgrades it; one of a newer version is told from it."""
    migrate(database)
    with database.writing() as session:
        session.execute(text("UPDATE alembic_version SET version_num = '0025'"))
    with pytest.raises(Unavailable, match=r"before 0.1.0 \(0025\): start version 0.1.0"):
        migrate(database)
    assert ["unreleased", "behind", "ahead"] == [standing_of(x) for x in ("0025", "0026", "9999")]
