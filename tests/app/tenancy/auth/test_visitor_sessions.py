"""Sessions of visitors: when each ends, and how little of it is stored."""

from __future__ import annotations

import threading
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import func, select, text

from app.infra.db.database import Database
from app.infra.db.tables.tenants import VisitorSessionRow
from app.infra.errors import Unauthorized
from app.tenancy.auth.records import Identity
from app.tenancy.auth.service import Authenticator, KeyService
from app.tenancy.auth.visitor_sessions import VisitorSessions
from tests.support.app.backups import Copies
from tests.support.backends import Backend

HOUR = timedelta(hours=1)


class Clock:
    """A clock that the test advances."""

    def __init__(self) -> None:
        self.now = datetime.now(UTC)

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def sessions(migrated: Database, clock: Clock) -> VisitorSessions:
    """Sessions that last for an hour."""
    return VisitorSessions(migrated, HOUR, clock=clock)


def holder(database: Database, valid_for: timedelta | None = None) -> Identity:
    """The holder of a new key."""
    keys = KeyService()
    with database.writing() as session:
        record = keys.check(session, keys.create(session, "default", valid_for=valid_for))
    return Identity(record.tenant, record.scopes, record.id, record.prefix)


def is_open(sessions: VisitorSessions, database: Database, token: str) -> bool:
    with database.reading() as session:
        try:
            sessions.check(session, token)
        except Unauthorized:
            return False
        return True


def stored(database: Database) -> int:
    with database.reading() as session:
        return session.scalars(select(func.count()).select_from(VisitorSessionRow)).one()


@pytest.mark.smoke
def test_a_session_ends_in_time(
    migrated: Database, sessions: VisitorSessions, clock: Clock
) -> None:
    """It opens what its key opens until its hour is over; then the clean-up deletes it."""
    owner = holder(migrated)
    first = sessions.begin(owner)
    clock.now += HOUR / 2
    second = sessions.begin(owner)
    with migrated.reading() as session:
        record, _ = sessions.check(session, first)
        assert (owner.key_id, owner.tenant, owner.scopes) == (
            *(record.id, record.tenant, record.scopes),
        )
    clock.now += HOUR / 2
    assert [False, True] == [is_open(sessions, migrated, each) for each in (first, second)]
    sessions.prune(threading.Event())
    assert 1 == stored(migrated)


def test_a_session_ends_with_its_key(
    migrated: Database, sessions: VisitorSessions, clock: Clock
) -> None:
    """Where the key is revoked or expires, before the session would."""
    lasting, brief, revoked = holder(migrated), holder(migrated, HOUR / 2), holder(migrated)
    tokens = [sessions.begin(owner) for owner in (lasting, brief, revoked)]
    clock.now += HOUR * 2 / 3
    with migrated.writing() as session:
        KeyService().revoke(session, str(revoked.prefix))
    assert [True, False, False] == [is_open(sessions, migrated, each) for each in tokens]


def test_signing_out_ends_one_session(migrated: Database, sessions: VisitorSessions) -> None:
    """In every process; the key and its other sessions stay. An unknown token changes nothing."""
    owner = holder(migrated)
    tokens = [sessions.begin(owner) for _ in range(3)]
    elsewhere = VisitorSessions(migrated, HOUR)
    for token in (tokens[1], tokens[1], "unknown", ""):
        elsewhere.end(token)
    assert [True, False, True] == [is_open(sessions, migrated, each) for each in tokens]


def test_callers_are_asked_for_again(migrated: Database, sessions: VisitorSessions) -> None:
    """Streams ask whether callers may go on: until a key is revoked, or a visitor signs out."""
    keys, owner, revoked = KeyService(), holder(migrated), holder(migrated)
    asked = Authenticator(migrated, keys, sessions, owner.tenant, keys_required=True)
    tokens = [sessions.begin(each) for each in (owner, owner, revoked)]
    visitors = [asked.identify_visitor(each) for each in tokens]
    assert [owner, *visitors] == asked.usable([owner, *visitors])
    sessions.end(tokens[0])
    with migrated.writing() as session:
        keys.revoke(session, str(revoked.prefix))
    assert [owner, visitors[1]] == asked.usable([owner, *visitors, revoked])


def test_a_key_has_a_hundred_sessions(migrated: Database, sessions: VisitorSessions) -> None:
    """Another one ends the oldest, and no session of another key."""
    other = sessions.begin(holder(migrated))
    owner = holder(migrated)
    tokens = [sessions.begin(owner) for _ in range(102)]
    assert 101 == stored(migrated)
    opened = [is_open(sessions, migrated, each) for each in (other, *tokens[:3], tokens[-1])]
    assert [True, False, False, True, True] == opened


def test_a_restored_backup_has_no_sessions(
    backend: Backend, migrated: Database, sessions: VisitorSessions, tmp_path: Path
) -> None:
    """Some of those that the backup has may have been signed out of since; the keys stay."""
    owner = holder(migrated)
    sessions.begin(owner)
    Copies(backend, tmp_path).back_up(tmp_path / "to")
    restored = tmp_path / "restored"
    Copies(backend, restored).put_back(tmp_path / "to")
    assert 1 == stored(migrated)
    with closing(Database(backend.url(restored), timeout=5)) as database:
        assert 0 == stored(database)
        with database.reading() as session:
            assert {owner.key_id} == KeyService().usable(session, [owner.key_id or 0])


def test_no_token_is_stored(migrated: Database, sessions: VisitorSessions) -> None:
    """A backup, or another copy of the database, has hashes alone."""
    token = sessions.begin(holder(migrated))
    with migrated.reading() as session:
        (row,) = session.execute(text("SELECT * FROM visitor_sessions")).all()
    assert token not in str(row)
    for cell in row:
        assert not isinstance(cell, bytes) or token.encode() not in cell
    with migrated.reading() as session:
        assert 32 == len(session.scalars(select(VisitorSessionRow.sha256)).one())
