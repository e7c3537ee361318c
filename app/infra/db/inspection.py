"""A view of a database that leaves it as it is: no file, no log and no table is made."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

from sqlalchemy import URL, create_engine
from sqlalchemy.exc import DatabaseError
from sqlalchemy.pool import NullPool

from app.infra.db.database import Database, Reader
from app.infra.db.engines import redact_url
from app.infra.errors import Unavailable

__all__ = ["inspect_database"]


@contextmanager
def inspect_database(url: URL, *, timeout: float) -> Iterator[Reader]:
    """Open a view of an existing database.

    Args:
        url: the URL of an existing file of SQLite, or of Postgres.
        timeout: the seconds to wait for the connection, and for a lock.

    Raises:
        Unavailable: the database cannot be opened or read, or is none.
    """
    is_file = url.get_backend_name() == "sqlite"
    try:
        with _sqlite(url, timeout) if is_file else _postgres(url, timeout) as session:
            yield session
    except DatabaseError as error:
        reason = str(error.orig).strip().splitlines()[0]
        raise Unavailable(f"{redact_url(url)} cannot be read: {reason}") from error


@contextmanager
def _postgres(url: URL, timeout: float) -> Iterator[Reader]:
    opened = Database(url, timeout=timeout, connections=1)
    with closing(opened) as database, database.reading() as session:
        yield session


@contextmanager
def _sqlite(url: URL, timeout: float) -> Iterator[Reader]:
    file = Path(str(url.database)).absolute()
    # Without a log no service has it open. SQLite would make one, and a reader leaves it behind.
    has_log = file.with_name(f"{file.name}-wal").exists()
    address = f"file:{quote(str(file))}?mode=ro{'' if has_log else '&immutable=1'}"
    engine = create_engine(
        "sqlite://",
        creator=lambda: sqlite3.connect(address, uri=True, timeout=timeout),
        poolclass=NullPool,
    )
    with Reader(engine, autoflush=False) as session:
        yield session
