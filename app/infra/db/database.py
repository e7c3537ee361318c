"""Transactions: ``reading()`` for a snapshot, ``writing()`` for one change, whole or not at all.

Readers and writers are different types, so that a query which writes cannot be handed a reader by
mistake.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import URL, Connection, CursorResult, Engine, Select, event, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.orm import Session

from app.infra import fail_points
from app.infra.db.engines import connect
from app.infra.db.notifications import follow
from app.infra.db.write_queue import WriteQueue
from app.infra.errors import StorageFull, Unavailable
from app.infra.outages import Outage

__all__ = ["Database", "Reader", "Writer"]


_LOCK_NOT_AVAILABLE = "55P03"
"""The code of Postgres for a lock that is not free in time (its appendix A)."""
_AWAY = ("08", "57P")
"""How codes of Postgres begin for lost connections, and for a server that starts or stops."""


class Reader(Session):
    """One consistent view of the database. Nothing it does is ever committed."""

    _opened: Connection | None = None
    """The connection of the transaction, closed once that has ended."""

    def rows(
        self, query: Select[*tuple[Any, ...]], **values: object
    ) -> CursorResult[*tuple[Any, ...]]:
        """Return the rows of a query of columns, without the ORM and so in half the time.

        Args:
            values: the values of the query's parameters.
        """
        if self.autoflush:
            self.flush()
        # To look the connection up takes a quarter of a query; in a savepoint, it begins that.
        if self._opened is None or self._opened.closed or self.in_nested_transaction():
            self._opened = self.connection()
        return self._opened.execute(query, values)

    def release(self) -> None:
        """End the view and give its connection back, before a long computation.

        A query after it begins another view, which may be newer. A writer keeps its transaction.
        """
        self.rollback()


class Writer(Reader):
    """One change of the database, with the actions that follow its outcome."""

    def __init__(self, bind: Engine) -> None:
        super().__init__(bind, autoflush=True, expire_on_commit=False)
        self._after_commit: list[Callable[[], None]] = []
        self._after_rollback: list[Callable[[], None]] = []

    def release(self) -> None:
        """Do nothing: the changes of a writer are one change, whole or not at all."""

    def after_commit(self, action: Callable[[], None]) -> None:
        """Run ``action`` once the change is durable."""
        self._after_commit.append(action)

    def notify(self, channel: str) -> None:
        """Notify those who follow ``channel`` of the change; SQLite's see any change."""
        if self.get_bind().dialect.name == "postgresql":
            self.execute(text(f"NOTIFY {channel}"))

    def after_rollback(self, action: Callable[[], None]) -> None:
        """Run ``action`` if the change was certainly not committed.

        If the commit itself fails, its outcome is unknown, and the action does not run. A disk that
        is full is the exception: both databases log that a change is committed last of all.
        """
        self._after_rollback.append(action)


class Database:
    """A SQLite file or a Postgres database.

    Args:
        url: an SQLAlchemy URL.
        timeout: the seconds that a writer waits for another writer.
        connections: the size of the pool.
        queue: the queue of this process's writers to the same SQLite file; a new queue by default.
        outage: what announces in the log that this database is away; by default one of its own.

    Raises:
        Unavailable: the database cannot be opened, or could lose acknowledged writes.
    """

    def __init__(
        self,
        url: str | URL,
        *,
        timeout: float,
        connections: int = 40,
        queue: WriteQueue | None = None,
        outage: Outage | None = None,
    ) -> None:
        self.url = make_url(url)
        self._queue = queue or WriteQueue()
        self._outage = outage or Outage("the database", "requests are refused, and jobs wait")
        self._engines = connect(
            self.url, timeout=timeout, connections=connections, queue=self._queue
        )
        event.listen(self._engines.reading, "checkout", lambda *_: self._outage.end())

    @property
    def engine(self) -> Engine:
        """The engine of all transactions, for observers of them."""
        return self._engines.reading

    def second_pool(self, *, timeout: float, connections: int) -> Database:
        """Open the database again with other connections and another timeout; the caller closes it.

        Writers of both pools wait in one queue.

        Raises:
            Unavailable: the database cannot be opened.
        """
        return Database(
            self.url,
            timeout=timeout,
            connections=connections,
            queue=self._queue,
            outage=self._outage,
        )

    @contextmanager
    def reading(self) -> Iterator[Reader]:
        """A consistent view, for as long as the block runs."""
        with self._faults(), Reader(self._engines.reading, autoflush=False) as session:
            yield session

    @contextmanager
    def writing(self) -> Iterator[Writer]:
        """A change: committed, durably, when the block ends; rolled back when it raises.

        The transaction begins with the first statement. SQLite takes its only write lock there,
        after the writers of this process that came before; so do slow work before it.
        """
        with self._faults(), Writer(self._engines.writing) as session:
            try:
                yield session
                session.flush()
            except BaseException:
                _roll_back(session)
                raise
            try:
                with fail_points.around("commit"):
                    session.commit()
            except OperationalError as error:
                if _is_full(error.orig):
                    _roll_back(session)
                raise
        for action in session._after_commit:
            action()

    def follow(self, channel: str, stopping: threading.Event) -> Iterator[None]:
        """Yield soon after each change that names ``channel``, by any process or machine.

        Other changes may be among them. A connection is held until ``stopping`` is set.

        Raises:
            Unavailable: the connection was lost; changes may have been missed.
        """
        with self._faults():
            yield from follow(self._engines.reading, channel, stopping)

    def check(self) -> None:
        """Raise :class:`Unavailable` unless the database answers."""
        with self.reading() as session:
            session.connection().exec_driver_sql("SELECT 1")

    def truncate_log(self) -> None:
        """Cut SQLite's write-ahead log where it has outgrown its limit; a round of the clean-up.

        The log grows while readers overlap, and would keep its size.

        Raises:
            Unavailable: other writers were first.
        """
        with self._faults():
            self._engines.truncate_log()

    @contextmanager
    def _faults(self) -> Iterator[None]:
        """Turn a locked, full or lost database into :class:`Unavailable`; bugs stay what they are.

        Code that reads past SQLAlchemy gets the driver's errors.
        """
        driver: Any = self._engines.reading.dialect.dbapi
        since = time.monotonic()
        try:
            yield
        except PoolTimeout as error:
            raise Unavailable("every connection to the database is in use: try again") from error
        except (OperationalError, driver.OperationalError) as error:
            raise self._refusal(getattr(error, "orig", error), since) from error
        except DBAPIError as error:
            if error.connection_invalidated:
                raise self._refusal(error.orig, since) from error
            raise

    def _refusal(self, error: object, since: float) -> Unavailable:
        """Return the error for the client; of a lost database, the log has one line in all."""
        refusal = _refusal(error)
        if self.url.get_backend_name() == "postgresql" and _is_away(error):
            self._outage.begin(since)
            refusal.announced = True
        return refusal

    def close(self) -> None:
        """Close every connection; SQLite folds its write-ahead log into the file."""
        self._engines.writing.dispose()


def _roll_back(session: Writer) -> None:
    try:
        session.rollback()
    finally:  # a lost connection has rolled back, too
        for action in session._after_rollback:
            action()


def _is_full(error: object) -> bool:
    """Whether a driver's error says that the disk is full; so say Postgres and SQLite it."""
    return any(words in str(error) for words in ("is full", "No space left"))


def _refusal(error: object) -> Unavailable:
    """Return the error for the client, with the driver's error as the reason for the log."""
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
    if _is_full(error):
        return StorageFull("the database has no room left", reason=reason)
    if _is_lock_timeout(error):
        return Unavailable(
            "the database cannot serve this now: another writer holds a lock that this needs",
            reason=reason,
        )
    return Unavailable("the database cannot serve this now", reason=reason)


def _is_away(error: object) -> bool:
    """Whether a driver's error says that Postgres cannot be reached, or ends its connections."""
    code = getattr(error, "sqlstate", None)
    return code is None or code.startswith(_AWAY)


def _is_lock_timeout(error: object) -> bool:
    if isinstance(error, sqlite3.Error):
        return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY
    return getattr(error, "sqlstate", None) == _LOCK_NOT_AVAILABLE
