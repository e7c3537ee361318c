"""A prepared SELECT reads what SQLAlchemy reads, in the same transaction."""

from __future__ import annotations

import hashlib
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from sqlalchemy import bindparam, func, select

from app.auth import repository
from app.auth.service import KeyService, generate
from app.infra.db.database import Database
from app.infra.db.prepared import Prepared
from app.infra.db.tables.base import Base
from app.infra.db.tables.tenants import ApiKeyRow, TenantRow
from tests.support.backends import Backend


def _made(database: Database) -> None:
    with database.writing() as session:
        Base.metadata.create_all(session.connection())


KEYS = Prepared(
    lambda: (
        select(*ApiKeyRow.__table__.columns)
        .where(ApiKeyRow.label == bindparam("labelled"), func.length(ApiKeyRow.prefix) == 11)
        .order_by(ApiKeyRow.id)
    )
)


def test_its_rows_are_those_of_the_mapped_class(database: Database) -> None:
    """Times, lists and bytes have their types, whatever the driver makes of them."""
    _made(database)
    with database.writing() as session:
        for valid_for in (None, timedelta(days=1)):
            KeyService().create(session, "lab", label="a b", valid_for=valid_for)
    with database.reading() as session:
        mapped = session.scalars(select(ApiKeyRow).order_by(ApiKeyRow.id)).all()
        read = KEYS.all(session, labelled="a b")
        assert 2 == len(read)
        for name in ApiKeyRow.__table__.columns.keys():  # noqa: SIM118  # an ordered collection
            assert [getattr(row, name) for row in mapped] == [getattr(row, name) for row in read]
        assert [None, datetime.now(UTC).tzinfo] == [
            None if row.expires_at is None else row.expires_at.tzinfo for row in read
        ]
        assert KEYS.first(session, labelled="none") is None


def test_it_sees_what_its_own_transaction_wrote(database: Database) -> None:
    """Also what is not flushed yet; and others see it when it is committed, not before."""
    _made(database)
    named = Prepared(lambda: select(TenantRow.id).where(TenantRow.name == bindparam("named")))
    with database.writing() as session:
        session.add(TenantRow(name="new"))
        assert named.first(session, named="new") is not None
        with database.reading() as other:
            assert named.first(other, named="new") is None
    with database.reading() as other:
        assert named.first(other, named="new") is not None


def test_a_view_stays_what_it_was(database: Database) -> None:
    """All statements of one reader see one state."""
    _made(database)
    key = generate()
    digest = hashlib.sha256(key.encode()).digest()
    with database.reading() as session:
        assert repository.find_key(session, digest) is None
        with database.writing() as writer:
            KeyService().create(writer, "lab", key=key)
        assert repository.find_key(session, digest) is None
    with database.reading() as session:
        found = repository.find_key(session, digest)
        assert found is not None
        assert ("lab", frozenset({"read", "write"})) == (found.tenant.name, found.scopes)


def test_the_session_goes_on_in_the_same_view(database: Database) -> None:
    """Also where the prepared statement was first; after a rollback both see the present."""
    _made(database)
    named = Prepared(lambda: select(TenantRow.id).where(TenantRow.name == bindparam("named")))
    mapped = select(TenantRow.id).where(TenantRow.name == "new")
    with database.reading() as session:
        assert named.first(session, named="new") is None
        with database.writing() as writer:
            writer.add(TenantRow(name="new"))
        assert session.scalar(mapped) is None
        session.rollback()
        found = session.scalar(mapped)
        assert found is not None
        assert found == named.first(session, named="new").id


def test_a_view_holds_one_connection_and_gives_it_back(backend: Backend, tmp_path: Path) -> None:
    """Whichever statement is first, and whether the block fails or not."""
    opened = Database(backend.url(tmp_path), timeout=0.2, connections=1)
    with closing(opened):
        _made(opened)
        named = Prepared(lambda: select(TenantRow.id).where(TenantRow.name == bindparam("named")))
        for _ in range(3):
            with opened.reading() as session:
                assert named.first(session, named="x") is None
                assert session.scalar(select(func.count()).select_from(TenantRow)) == 0
            with suppress(KeyError), opened.reading() as session:
                assert named.first(session, named="x") is None
                raise KeyError
            with opened.reading() as session:
                assert named.first(session, named="x") is None
                session.rollback()
                with opened.reading() as other:
                    assert named.first(other, named="x") is None
