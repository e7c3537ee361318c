"""Migrate the database to this version of the service, or check that it is there.

Alembic is slow to import. A database that is at this version does not need it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Final, Literal

from sqlalchemy import Connection, inspect, text
from sqlalchemy.exc import OperationalError, ProgrammingError

from app.infra.db.database import Database, Reader
from app.infra.db.engines import redact_url
from app.infra.db.tables.all_tables import Base
from app.infra.errors import Unavailable
from app.infra.programs import service_command

__all__ = [
    "Standing",
    "is_known",
    "migrate",
    "require_current",
    "revision_in",
    "revision_of",
    "standing_of",
]

Standing = Literal["empty", "unreleased", "behind", "current", "ahead"]
"""The standing of a database's tables against this version of the service.

Unreleased tables are of a version before 0.1.0, which alone upgrades them.
"""

_MAX_LOCK_WAIT_S: Final = 60.0
"""Seconds that a migration waits for the tables of a busy service."""
_LOCK_WAIT_MS: Final = 500
"""One attempt's wait: shorter than that of requests, and than Postgres' wait for deadlocks (1 s).
"""
_VACUUM_WAIT_MS: Final = 3_000
"""A wait longer than the second after which Postgres ends an autovacuum that a lock waits for."""
_QUERY_CANCELED: Final = "57014"
"""The code of Postgres for a statement that took too long (its appendix A)."""
_RETRY_S: Final = 0.2
"""Seconds between two attempts, in which the service goes on."""

_SCRIPTS = Path(__file__).resolve().parents[3] / "migrations"


def migrate(
    database: Database,
    *,
    revision: str = "head",
    fill: Callable[[Connection], object] = lambda _: None,
) -> None:
    """Run every migration the database has not seen, in one transaction, all or none.

    Args:
        revision: the last to run; by default the newest.
        fill: writes to the migrated tables in the same transaction.

    Raises:
        Unavailable: the database was written by a newer version of the service, or cannot
        be written.
    """
    with database.writing() as session:
        connection = session.connection()
        try:
            with _without_limit(connection):
                _lock(connection)
                heads = _heads(connection)
                _refuse_others(heads, database)
                if revision != "head" or heads != {max(_known_migrations())}:
                    _take_tables(connection)
                    _upgrade(connection, revision)
                fill(connection)
        except ProgrammingError as error:  # Postgres: a table of this name exists
            reason = str(error.orig).strip().splitlines()[0]
            raise Unavailable(
                f"cannot migrate the database at {redact_url(database.url)}: {reason}"
            ) from error


def revision_of(database: Database) -> str:
    """The last migration that the database has seen; empty without one."""
    with database.reading() as session:
        return revision_in(session)


def revision_in(session: Reader) -> str:
    """The last migration that the database of a session has seen; empty without one."""
    return ",".join(sorted(_heads(session.connection())))


def standing_of(revision: str) -> Standing:
    """Compare a database of this revision with this version of the service."""
    if not revision:
        return "empty"
    if unknown := set(revision.split(",")) - _known_migrations():
        return "unreleased" if max(unknown) < min(_known_migrations()) else "ahead"
    return "current" if revision == max(_known_migrations()) else "behind"


def is_known(revision: str) -> bool:
    """Whether this version of the service has such a migration."""
    return revision in _known_migrations()


def require_current(database: Database) -> None:
    """Raise :class:`Unavailable` unless the database is at this version."""
    with database.reading() as session:
        heads = _heads(session.connection())
    _refuse_others(heads, database)
    if heads != {max(_known_migrations())}:
        raise Unavailable(
            f"the database at {redact_url(database.url)} is of an older version: "
            f"run `{service_command('migrate')}`, or start once without --no-migrate"
        )


def _lock(connection: Connection) -> None:
    """Let one process migrate while others that start at the same time wait."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SET LOCAL lock_timeout = 0"))
        connection.execute(text("SELECT pg_advisory_xact_lock(hashtext('modelkin migrations'))"))
        connection.execute(text("SET LOCAL lock_timeout TO DEFAULT"))
    # SQLite's writers queue up at BEGIN IMMEDIATE already.


def _take_tables(connection: Connection) -> None:
    """Lock all tables or none, in the order in which the service uses them: a whole before parts.

    A migration that waited for one table while it held others could be in a deadlock with the
    requests of a service that goes on.
    """
    if connection.dialect.name != "postgresql":
        return
    present = set(inspect(connection).get_table_names())
    names = [table.name for table in Base.metadata.sorted_tables if table.name in present]
    if not names:
        return
    # An autovacuum gives way to a lock that waits for a second. This one hinders no service.
    _took(connection, names, "SHARE UPDATE EXCLUSIVE", _VACUUM_WAIT_MS)
    end = time.monotonic() + _MAX_LOCK_WAIT_S
    while not _took(connection, names, "ACCESS EXCLUSIVE", _LOCK_WAIT_MS):
        if time.monotonic() > end:
            raise Unavailable(
                f"cannot migrate the database: its tables were in use for {_MAX_LOCK_WAIT_S:.0f} "
                f"seconds; end long transactions and VACUUM, or stop the services"
            )
        time.sleep(_RETRY_S)


def _took(connection: Connection, names: Sequence[str], mode: str, wait_ms: int) -> bool:
    """Whether all these tables were free in time, and now are this transaction's."""
    try:
        with connection.begin_nested():
            connection.execute(text("SET LOCAL lock_timeout = 0"))
            connection.execute(text(f"SET LOCAL statement_timeout = {wait_ms}"))
            connection.execute(text(f"LOCK TABLE {', '.join(names)} IN {mode} MODE"))
            connection.execute(text("SET LOCAL statement_timeout TO DEFAULT"))
            connection.execute(text("SET LOCAL lock_timeout TO DEFAULT"))
    except OperationalError as error:
        if getattr(error.orig, "sqlstate", None) == _QUERY_CANCELED:
            return False
        raise
    return True


def _heads(connection: Connection) -> set[str]:
    """The last migration that a database has seen, as Alembic records it; empty without one."""
    if not inspect(connection).has_table("alembic_version"):
        return set()
    return set(connection.scalars(text("SELECT version_num FROM alembic_version")))


def _without_limit(connection: Connection) -> AbstractContextManager[None]:
    if connection.dialect.name != "postgresql":
        return nullcontext()
    from app.infra.db.timeouts import without_limit

    return without_limit(connection)


def _refuse_others(heads: set[str], database: Database) -> None:
    unknown = ",".join(sorted(heads - _known_migrations()))
    if not unknown:
        return
    which, what = "a newer version", "run the version of the service that wrote it"
    if standing_of(unknown) == "unreleased":
        which, what = "a version before 0.1.0", "start version 0.1.0 of the service on it first"
    raise Unavailable(
        f"the database at {redact_url(database.url)} is of {which} ({unknown}): {what}"
    )


def _known_migrations() -> set[str]:
    """All migrations of this version. Each has the number that its file's name begins with."""
    files = (_SCRIPTS / "versions").glob("[0-9]*.py")
    return {file.name.partition("_")[0] for file in files}


def _upgrade(connection: Connection, revision: str) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_SCRIPTS))
    config.attributes["connection"] = connection
    command.upgrade(config, revision)
