"""Connections to SQLite: no cursor outlives its transaction, and writers wait in one queue.

SQLite keeps a connection in its snapshot while a cursor of it is open. Such a connection reads old
data, cannot write, and holds up the checkpoints of the write-ahead log. A cursor is easily kept:
the traceback of an error keeps the generator that reads from it. So each connection knows its
cursors, and closes them when its transaction ends.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from weakref import WeakSet

from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.exc import DatabaseError

from app.infra.db.json_text import column_text
from app.infra.db.write_queue import WriteQueue
from app.infra.errors import Unavailable
from app.infra.private_files import prepare_database_file

__all__ = ["SqliteConnection", "WriterTimeout", "open_sqlite", "truncate_log"]

_LOG_SIZE_LIMIT = 8 << 20
"""Bytes of the write-ahead log that may stay on the disk; SQLite folds it in at 4 MiB."""
_CHECKPOINT_TIMEOUT_S = 0.5
"""Seconds that a truncating checkpoint waits for readers, and all writers for it."""
_HEAP_LIMIT = 32 << 20
"""Bytes of the page caches of all connections together, from which on they grow no further."""
_PRAGMAS = (
    "journal_mode=WAL",
    "synchronous=FULL",  # acknowledged writes survive a power loss
    "foreign_keys=ON",
    "cache_size=-2048",  # of a connection: each change by another one empties it
    f"soft_heap_limit={_HEAP_LIMIT}",  # of the process
    f"journal_size_limit={_LOG_SIZE_LIMIT}",
)


class WriterTimeout(sqlite3.OperationalError):
    """The turn of a writer did not come in time."""

    sqlite_errorcode = sqlite3.SQLITE_BUSY


class SqliteConnection(sqlite3.Connection):
    """A connection whose cursors, and whose turn to write, end with its transaction."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._timeout: float = options["timeout"]
        self._cursors: WeakSet[sqlite3.Cursor] = WeakSet()
        self._queue: WriteQueue | None = None
        """The queue in which it is this connection's turn."""

    def cursor(self, *arguments: Any, **options: Any) -> Any:
        cursor = super().cursor(*arguments, **options)
        self._cursors.add(cursor)
        return cursor

    def execute(self, *arguments: Any) -> sqlite3.Cursor:
        cursor: sqlite3.Cursor = self.cursor().execute(*arguments)
        return cursor

    def executemany(self, *arguments: Any) -> sqlite3.Cursor:
        cursor: sqlite3.Cursor = self.cursor().executemany(*arguments)
        return cursor

    def begin_immediate(self, queue: WriteQueue) -> None:
        """Begin a transaction with the write lock; the wait for turn and lock is the timeout's.

        Raises:
            sqlite3.OperationalError: another writer holds the lock for longer.
        """
        with self._turn(queue, self._timeout):
            self.execute("BEGIN IMMEDIATE").close()

    def checkpoint(self, queue: WriteQueue, timeout: float) -> bool:
        """Fold the write-ahead log in and empty its file; return whether no reader prevented it.

        Raises:
            sqlite3.OperationalError: the turn of this writer did not come.
        """
        with self._turn(queue, timeout):
            busy: int = self.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()[0][0]
        self._end_turn()
        return not busy

    def commit(self) -> None:
        self._close_cursors()
        try:
            super().commit()
        except BaseException:
            self.rollback()  # SQLAlchemy gives the connection back as it is
            raise
        self._end_turn()

    def rollback(self) -> None:
        try:
            self._close_cursors()
            super().rollback()
        finally:
            self._end_turn()

    def close(self) -> None:
        try:
            super().close()
        finally:
            self._end_turn()

    @contextmanager
    def _turn(self, queue: WriteQueue, timeout: float) -> Iterator[None]:
        """Wait for this connection's turn, which it keeps unless the block fails.

        In the block SQLite waits for the rest of the time.
        """
        end = time.monotonic() + timeout
        if not queue.take(timeout):
            raise WriterTimeout(f"other writers of this process were first for {timeout:g} s")
        self._queue = queue
        try:
            self._wait_at_most(end - time.monotonic())
            try:
                yield
            finally:
                self._wait_at_most(self._timeout)
        except BaseException:
            self._end_turn()
            raise

    def _wait_at_most(self, seconds: float) -> None:
        self.execute(f"PRAGMA busy_timeout = {max(0, round(seconds * 1000))}").close()

    def _close_cursors(self) -> None:
        for cursor in list(self._cursors):
            cursor.close()

    def _end_turn(self) -> None:
        queue, self._queue = self._queue, None
        if queue is not None:
            queue.pass_on()


def open_sqlite(url: URL, timeout: float, pool: dict[str, Any], queue: WriteQueue) -> Engine:
    """The pool of connections to a file, which is created for its owner alone.

    Transactions are deferred, or begin with the write lock under the option ``begin="IMMEDIATE"``.

    Raises:
        Unavailable: the file or its folder cannot be used.
    """
    _prepare(Path(str(url.database)).absolute())
    engine = create_engine(
        url,
        connect_args={"timeout": timeout, "factory": SqliteConnection},
        json_serializer=column_text,
        **pool,
    )

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        """Take the lock of a writer at once: a deferred one fails where an immediate one waits."""
        if connection.get_execution_options().get("begin") == "IMMEDIATE":
            _driver(connection.connection).begin_immediate(queue)
        else:
            _driver(connection.connection).execute("BEGIN").close()

    event.listen(engine, "connect", _configure)
    try:
        engine.connect().close()
    except DatabaseError as error:  # not writable, or not a database
        raise Unavailable(f"cannot open the database {url.database}: {error.orig}") from error
    return engine


def truncate_log(engine: Engine, queue: WriteQueue) -> None:
    """Cut a write-ahead log that has outgrown its limit, as it does while readers overlap.

    The cut waits briefly for present readers; while a reader stays, the log stays.

    Raises:
        sqlite3.OperationalError: other writers were first.
    """
    try:
        size = Path(f"{engine.url.database}-wal").stat().st_size
    except FileNotFoundError:
        return
    if size > _LOG_SIZE_LIMIT:
        with closing(engine.raw_connection()) as connection:
            _driver(connection).checkpoint(queue, _CHECKPOINT_TIMEOUT_S)


def _prepare(file: Path) -> None:
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise Unavailable(f"cannot make the data folder {file.parent}: {error.strerror}") from error
    prepare_database_file(file)


def _configure(connection: SqliteConnection, _record: object) -> None:
    connection.isolation_level = None  # the listener of "begin" begins transactions
    for pragma in _PRAGMAS:
        connection.execute(f"PRAGMA {pragma}").close()


def _driver(connection: Any) -> SqliteConnection:
    driver = connection.driver_connection
    assert isinstance(driver, SqliteConnection)
    return driver
