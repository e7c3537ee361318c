"""Engines of SQLite and Postgres: how a connection is set up, and how a write begins.

All other modules use :class:`Engines`, and need not know which database it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, text
from sqlalchemy.exc import OperationalError

from app.infra.db.json_text import column_text
from app.infra.db.sqlite import open_sqlite, truncate_log
from app.infra.db.visibility import SETTING, visible
from app.infra.db.write_queue import WriteQueue
from app.infra.errors import Unavailable

__all__ = ["Engines", "connect", "redact_url"]

_SILENCE_FACTOR = 3
"""Timeouts that Postgres may stay silent: it may first wait for a lock, and then work."""


@dataclass(frozen=True, slots=True)
class Engines:
    """One pool of connections, for two kinds of transactions.

    Attributes:
        reading: the engine of consistent snapshots.
        writing: the engine of changes.
        truncate_log: a function that cuts a write-ahead log beyond its limit; Postgres does this by
            itself.
    """

    reading: Engine
    writing: Engine
    truncate_log: Callable[[], None] = lambda: None


def connect(url: URL, *, timeout: float, connections: int, queue: WriteQueue) -> Engines:
    """Open the database at ``url``.

    Args:
        timeout: the seconds to wait for another writer's lock, and for a connection.
        connections: the size of the pool.
        queue: the queue of this process's writers, for SQLite.

    Raises:
        Unavailable: the database cannot be opened, or its configuration could lose acknowledged
            writes.
    """
    pool: dict[str, Any] = {"pool_size": connections, "max_overflow": 0, "pool_timeout": timeout}
    pool["pool_use_lifo"] = True  # few connections are in use, and fill their caches
    if url.get_backend_name() == "sqlite":
        engine = open_sqlite(url, timeout, pool, queue)
        immediate = engine.execution_options(begin="IMMEDIATE")
        return Engines(engine, immediate, partial(truncate_log, engine, queue))
    return _postgres(url, timeout, pool)


def redact_url(url: URL) -> str:
    """A URL for operators: without the passwords before its host and among its parameters."""
    return url.difference_update_query(["password", "sslpassword"]).render_as_string()


def _postgres(url: URL, timeout: float, pool: dict[str, Any]) -> Engines:
    milliseconds = round(timeout * 1000)
    engine = create_engine(
        url,
        connect_args={
            "connect_timeout": max(1, round(timeout)),
            "options": f"-c lock_timeout={milliseconds} -c timezone=UTC -c {SETTING}=0",
        },
        **pool,
        isolation_level="AUTOCOMMIT",  # of the driver: `_begin_visibly` begins transactions
        json_serializer=column_text,
        pool_pre_ping=True,  # a restarted server costs one ping, not one failed request each
    )
    from app.infra.db.timeouts import limit_waits  # imports psycopg

    limit_waits(engine, _SILENCE_FACTOR * timeout)
    event.listen(engine, "begin", _begin_visibly)
    _require_durability(engine)
    return Engines(
        engine.execution_options(begin="ISOLATION LEVEL REPEATABLE READ READ ONLY"),
        engine.execution_options(begin="ISOLATION LEVEL READ COMMITTED"),
    )


def _begin_visibly(connection: Connection) -> None:
    """Begin a transaction and say whose rows it sees, in one round trip."""
    mode = connection.get_execution_options().get("begin", "")
    driver: Any = connection.connection.driver_connection
    try:
        driver.execute(f"BEGIN {mode}; SET LOCAL {SETTING} = '{visible()}'", prepare=False)
    except connection.dialect.loaded_dbapi.Error:
        connection.invalidate()  # as SQLAlchemy does where a statement finds it lost
        raise


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
    except (OperationalError, engine.dialect.loaded_dbapi.OperationalError) as error:
        reason = str(getattr(error, "orig", error)).strip().splitlines()[0]
        raise Unavailable(f"cannot connect to {redact_url(engine.url)}: {reason}") from error
