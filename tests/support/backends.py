"""The databases that the service is tested on: a SQLite file, and a database of one Postgres."""

from __future__ import annotations

import hashlib
import secrets
import sqlite3
import tempfile
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Protocol

from app.infra.db.database import Database
from app.infra.db.migrations import migrate
from tests.support.servers.postgres import Postgres

__all__ = ["SQLITE", "Backend", "EmptyBackend", "PostgresBackend", "SqliteBackend"]

_TEMPLATE = "migrated"


class Backend(Protocol):
    """The kind of database that the services of a folder use."""

    name: str

    def url(self, folder: Path) -> str:
        """The database URL of the services in ``folder``: stable, and different for each folder."""

    def migrated_url(self, folder: Path) -> str:
        """The same URL, whose database is an installation of its own, migrated, if it is new.

        It is a copy of one that this process has migrated, because a migration takes longer than
        most tests.
        """


class SqliteBackend:
    """The file ``m.db`` in the folder."""

    name = "sqlite"

    def url(self, folder: Path) -> str:
        return f"sqlite:///{_file(folder)}"

    def migrated_url(self, folder: Path) -> str:
        file = _file(folder)
        if not file.exists():
            file.write_bytes(_migrated_file())
            with closing(sqlite3.connect(file, isolation_level=None)) as connection:
                connection.execute(_new_token())
        return self.url(folder)


class PostgresBackend:
    """A database for each folder on one server.

    Args:
        server: a running server.
    """

    name = "postgres"

    def __init__(self, server: Postgres) -> None:
        self.server = server

    def url(self, folder: Path) -> str:
        return self.server.create(_database(folder))

    def migrated_url(self, folder: Path) -> str:
        name = _database(folder)
        if not self.server.has(name):
            if not self.server.has(_TEMPLATE):
                _migrate(self.server.create(_TEMPLATE))
            self.server.create(name, template=_TEMPLATE)
            self.server.execute(_new_token(), name)
        return self.url(folder)


class EmptyBackend:
    """Another backend, whose new databases are empty: the first of its services migrates.

    Args:
        backend: the other one.
    """

    def __init__(self, backend: Backend) -> None:
        self.name = backend.name
        self._backend = backend

    def url(self, folder: Path) -> str:
        return self._backend.url(folder)

    def migrated_url(self, folder: Path) -> str:
        return self.url(folder)


SQLITE = SqliteBackend()


def _file(folder: Path) -> Path:
    return folder / "m.db"


def _database(folder: Path) -> str:
    return hashlib.sha256(str(folder).encode()).hexdigest()[:32]


@cache
def _migrated_file() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        _migrate(SQLITE.url(Path(folder)))
        return _file(Path(folder)).read_bytes()


def _migrate(url: str) -> None:
    with closing(Database(url, timeout=30)) as database:
        migrate(database)


def _new_token() -> str:
    """What makes a copy of a database another installation: a migration draws it."""
    return f"UPDATE installation SET token = '{secrets.token_hex(16)}'"
