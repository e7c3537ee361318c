"""Migrate the database to this version of the service, or check that it is there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text
from sqlalchemy.exc import ProgrammingError

from app.errors import Unavailable
from app.infra.db.database import Database
from app.infra.db.engines import shown
from app.infra.db.timeouts import without_limit

__all__ = ["is_known", "migrate", "require_current", "revision_of"]

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
            with without_limit(connection):
                _lock(connection)
                _refuse_newer(MigrationContext.configure(connection).get_current_heads(), database)
                command.upgrade(_config(connection), revision)
                fill(connection)
        except ProgrammingError as error:  # Postgres: a table of this name exists
            reason = str(error.orig).strip().splitlines()[0]
            raise Unavailable(
                f"cannot migrate the database at {shown(database.url)}: {reason}"
            ) from error


def revision_of(database: Database) -> str:
    """The last migration that the database has seen; empty without one."""
    with database.reading() as session:
        heads = MigrationContext.configure(session.connection()).get_current_heads()
    return ",".join(heads)


def is_known(revision: str) -> bool:
    """Whether this version of the service has such a migration."""
    return revision in _known()


def require_current(database: Database) -> None:
    """Raise :class:`Unavailable` unless the database is at this version."""
    with database.reading() as session:
        heads = MigrationContext.configure(session.connection()).get_current_heads()
    _refuse_newer(heads, database)
    if set(heads) != set(ScriptDirectory(str(_SCRIPTS)).get_heads()):
        raise Unavailable(
            f"the database at {shown(database.url)} is of an older version: "
            f"start once without --no-migrate"
        )


def _lock(connection: Connection) -> None:
    """Let one process migrate while others that start at the same time wait."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(hashtext('modelkin migrations'))"))
    # SQLite's writers queue up at BEGIN IMMEDIATE already.


def _refuse_newer(heads: tuple[str, ...], database: Database) -> None:
    if unknown := set(heads) - _known():
        raise Unavailable(
            f"the database at {shown(database.url)} is of a newer version "
            f"({', '.join(sorted(unknown))}): "
            f"run the version of the service that wrote it"
        )


def _known() -> set[str]:
    return {script.revision for script in ScriptDirectory(str(_SCRIPTS)).walk_revisions()}


def _config(connection: object) -> Config:
    config = Config()
    config.set_main_option("script_location", str(_SCRIPTS))
    config.attributes["connection"] = connection
    return config
