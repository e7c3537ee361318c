"""Engines of SQLite and Postgres: how a connection is set up, and how a write begins.

All other modules use :class:`Engines`, and need not know which database it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, text
from sqlalchemy.exc import DatabaseError, OperationalError

from app.errors import Unavailable
from app.infra.db.timeouts import limit_waits

__all__ = ["Engines", "connect"]

_SILENCE_FACTOR = 3
"""Timeouts that Postgres may stay silent: it may first wait for a lock, and then work."""


@dataclass(frozen=True, slots=True)
class Engines:
    """One pool of connections, for two kinds of transactions.

    Attributes:
        reading: begins a consistent snapshot.
        writing: begins a change.
    """

    reading: Engine
    writing: Engine


def connect(url: URL, *, timeout: float, connections: int) -> Engines:
    """Open the database at ``url``.

    Args:
        timeout: seconds to wait for another writer's lock, and for a connection.
        connections: size of the pool.

    Raises:
        Unavailable: it cannot be opened, or its configuration could lose acknowledged writes.
    """
    pool = {"pool_size": connections, "max_overflow": 0, "pool_timeout": timeout}
    if url.get_backend_name() == "sqlite":
        return _sqlite(url, timeout, pool)
    return _postgres(url, timeout, pool)


def _sqlite(url: URL, timeout: float, pool: dict[str, Any]) -> Engines:
    folder = Path(str(url.database)).absolute().parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Unavailable(f"cannot make the data folder {folder}: {error.strerror}") from error
    engine = create_engine(
        url,
        connect_args={"timeout": timeout},
        **pool,
    )
    event.listen(engine, "connect", _configure_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    try:
        engine.connect().close()
    except DatabaseError as error:  # not writable, or not a database
        raise Unavailable(f"cannot open the database {url.database}: {error.orig}") from error
    return Engines(engine, engine.execution_options(begin="IMMEDIATE"))


def _configure_sqlite(connection: Any, _record: object) -> None:
    """Set WAL, foreign keys and full syncs: acknowledged writes survive a power loss."""
    connection.isolation_level = None  # _begin_sqlite begins transactions
    cursor = connection.cursor()
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", "cache_size=-4096"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    """Take the lock of a writer at once: a deferred one fails where an immediate one waits."""
    mode = connection.get_execution_options().get("begin", "DEFERRED")
    connection.exec_driver_sql(f"BEGIN {mode}")


def _postgres(url: URL, timeout: float, pool: dict[str, Any]) -> Engines:
    milliseconds = round(timeout * 1000)
    engine = create_engine(
        url,
        connect_args={
            "connect_timeout": max(1, round(timeout)),
            "options": f"-c lock_timeout={milliseconds} -c timezone=UTC",
        },
        **pool,
        pool_pre_ping=True,  # a restarted server costs one ping, not one failed request each
    )
    limit_waits(engine, _SILENCE_FACTOR * timeout)
    _require_durability(engine)
    snapshot = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
    return Engines(
        engine.execution_options(**snapshot),
        engine.execution_options(isolation_level="READ COMMITTED"),
    )


def _require_durability(engine: Engine) -> None:
    """Refuse a server that acknowledges writes which it may lose in a crash."""
    try:
        with engine.connect() as connection:
            for setting in ("fsync", "synchronous_commit", "full_page_writes"):
                value = connection.scalar(text(f"SHOW {setting}"))
                if value == "off":
                    raise Unavailable(
                        f"the Postgres server has {setting} = off and would lose acknowledged "
                        f"writes in a crash: set it to on"
                    )
    except OperationalError as error:
        reason = str(error.orig).strip().splitlines()[0]
        raise Unavailable(f"cannot connect to {engine.url}: {reason}") from error
