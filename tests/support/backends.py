"""The databases that the service is tested on: a SQLite file, and a database of one Postgres."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Protocol

from tests.support.servers.postgres import Postgres

__all__ = ["SQLITE", "Backend", "PostgresBackend", "SqliteBackend"]


class Backend(Protocol):
    """The kind of database that the services of a folder use."""

    name: str

    def url(self, folder: Path) -> str:
        """The database URL of the services in ``folder``: stable, and different for each folder."""


class SqliteBackend:
    """The file ``m.db`` in the folder."""

    name = "sqlite"

    def url(self, folder: Path) -> str:
        return f"sqlite:///{folder}/m.db"


class PostgresBackend:
    """A database for each folder on one server.

    Args:
        server: a running server.
    """

    name = "postgres"

    def __init__(self, server: Postgres) -> None:
        self.server = server

    def url(self, folder: Path) -> str:
        return self.server.create(hashlib.sha256(str(folder).encode()).hexdigest()[:32])


SQLITE = SqliteBackend()
