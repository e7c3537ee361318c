"""Queries past the ORM are in the transaction, and in the savepoint, of their session."""

from __future__ import annotations

import pytest
from sqlalchemy import func, literal, select
from sqlalchemy.exc import DBAPIError

from app.infra.db.database import Database

ONE = select(literal(1))


def test_a_query_that_fails_in_a_savepoint_ends_that_alone(database: Database) -> None:
    """The transaction goes on, though its connection was known before the savepoint began."""
    with database.writing() as session:
        assert 1 == session.rows(ONE).scalar_one()
        with pytest.raises(DBAPIError), session.begin_nested():
            session.rows(select(func.no_such_function()))
        assert 1 == session.rows(ONE).scalar_one()


def test_a_view_after_a_release_is_another_transaction(database: Database) -> None:
    """The connection went back, so the next query looks for one."""
    with database.reading() as session:
        assert 1 == session.rows(ONE).scalar_one()
        before = session.connection()
        session.release()
        assert before.closed
        assert 1 == session.rows(ONE).scalar_one()
