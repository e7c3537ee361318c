"""The engine and its transactions: ``reading()`` for a snapshot, ``writing()`` for one change,
whole or not at all.

Readers and writers are different types, so that a query which writes cannot be handed a reader by
mistake.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.orm import Session

from modelkin.errors import StorageFull, Unavailable

__all__ = ["Database", "Reader", "Writer"]

_POOL = 40  # as many as the server has request threads: none ever waits for a connection


class Reader(Session):
    """One consistent view of the database. Nothing it does is ever committed."""


class Writer(Reader):
    """One change of the database. What must follow its outcome, such as deleting a file, is queued
    with it.
    """

    def __init__(self, bind: Engine) -> None:
        super().__init__(bind, autoflush=True, expire_on_commit=False)
        self._after_commit: list[Callable[[], None]] = []
        self._after_rollback: list[Callable[[], None]] = []

    def after_commit(self, action: Callable[[], None]) -> None:
        """Run ``action`` once the change is durable."""
        self._after_commit.append(action)

    def after_rollback(self, action: Callable[[], None]) -> None:
        """Run ``action`` if the change does not come about."""
        self._after_rollback.append(action)


class Database:
    """A SQLite file in WAL mode.

    Args:
        url: an SQLAlchemy URL.
        timeout: seconds a writer waits for another one to finish.

    Raises:
        Unavailable: the file, or the folder it lies in, cannot be written.
    """

    def __init__(self, url: str, *, timeout: float) -> None:
        self.url = make_url(url)
        self._prepare_folder(Path(str(self.url.database)))
        self.engine = create_engine(
            self.url,
            connect_args={"timeout": timeout},
            pool_size=_POOL,
            max_overflow=_POOL,
            pool_timeout=timeout,
        )
        event.listen(self.engine, "connect", _configure)
        event.listen(self.engine, "begin", _begin)
        self._write_engine = self.engine.execution_options(begin="IMMEDIATE")

    @contextmanager
    def reading(self) -> Iterator[Reader]:
        """A consistent view, for as long as the block runs."""
        with _faults(), Reader(self.engine, autoflush=False) as session:
            yield session

    @contextmanager
    def writing(self) -> Iterator[Writer]:
        """A change: committed, durably, when the block ends; rolled back when it raises.

        The transaction begins with the first statement. SQLite takes its one write lock there, so
        do what is slow before it.
        """
        with Writer(self._write_engine) as session:
            try:
                with _faults():
                    yield session
                    session.commit()
            except BaseException:
                session.rollback()
                for action in session._after_rollback:
                    action()
                raise
        for action in session._after_commit:
            action()

    def check(self) -> None:
        """Raise :class:`Unavailable` unless the database answers."""
        with self.reading() as session:
            session.execute(text("SELECT 1"))

    def close(self) -> None:
        """Close every connection; SQLite folds its write-ahead log into the file."""
        self.engine.dispose()

    @staticmethod
    def _prepare_folder(file: Path) -> None:
        folder = file.absolute().parent
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise Unavailable(f"cannot make the data folder {folder}: {error.strerror}") from error


def _configure(connection: Any, _record: object) -> None:
    """Every new connection: WAL, full syncs (what was acknowledged survives power loss), foreign
    keys.
    """
    connection.isolation_level = None  # BEGIN is ours to say, below
    cursor = connection.cursor()
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", "cache_size=-16384"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin(connection: Connection) -> None:
    """Writers take the lock at once: a deferred one fails where an immediate one waits."""
    mode = connection.get_execution_options().get("begin", "DEFERRED")
    connection.exec_driver_sql(f"BEGIN {mode}")


@contextmanager
def _faults() -> Iterator[None]:
    """A database that is locked, full, unreadable or gone becomes :class:`Unavailable`; mistakes
    stay mistakes.
    """
    try:
        yield
    except OperationalError as error:
        reason = str(error.orig)
        if "full" in reason:
            raise StorageFull(f"the database has no room left: {reason}") from error
        raise Unavailable(f"the database cannot serve this now: {reason}") from error
    except DBAPIError as error:
        if error.connection_invalidated:
            raise Unavailable("the connection to the database was lost") from error
        raise
