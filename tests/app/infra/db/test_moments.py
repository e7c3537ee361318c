"""Points in time have a zone: one without is refused, where it would be taken for local time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from sqlalchemy import literal, select
from sqlalchemy.exc import StatementError

from app.infra.db.database import Database
from app.infra.db.tables.base import Moment

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


def test_any_zone_is_kept_as_utc(database: Database) -> None:
    """The same moment comes back."""
    there = NOON.astimezone(timezone(timedelta(hours=9)))
    with database.reading() as session:
        found = session.rows(select(literal(there, Moment()))).scalar_one()
    assert (NOON, UTC) == (found, found.tzinfo)


def test_a_moment_without_a_zone_is_refused(database: Database) -> None:
    """The error shows the value."""
    with database.reading() as session, pytest.raises(StatementError, match="12:00:00 has no zone"):
        session.rows(select(literal(NOON.replace(tzinfo=None), Moment())))
