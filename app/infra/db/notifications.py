"""Following the changes of other processes, without queries of a table.

Postgres notifies those who listen on a channel. SQLite counts the changes of its file.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any, Final

from sqlalchemy import Engine

__all__ = ["follow"]

_SQLITE_INTERVAL_S: Final = 0.05
"""Seconds between two reads of SQLite's count of changes, which is in memory."""
_POSTGRES_WAIT_S: Final = 0.5
"""Seconds after which a listener looks whether it is to stop."""


def follow(engine: Engine, channel: str, stopping: threading.Event) -> Iterator[None]:
    """Yield after each notification on ``channel``, or after each change of a SQLite file."""
    connection = engine.raw_connection()
    driver: Any = connection.driver_connection
    connection.detach()  # for long: the pool opens another one
    with closing(driver):
        if engine.dialect.name == "postgresql":
            yield from _notifications(driver, channel, stopping)
        else:
            yield from _changes(driver, stopping)


def _notifications(driver: Any, channel: str, stopping: threading.Event) -> Iterator[None]:
    driver.execute(f"LISTEN {channel}")
    yield  # whatever came before it listened
    while not stopping.is_set():
        for _ in driver.notifies(timeout=_POSTGRES_WAIT_S, stop_after=1):
            yield


def _changes(driver: Any, stopping: threading.Event) -> Iterator[None]:
    last = None
    while not stopping.wait(_SQLITE_INTERVAL_S):
        (version,) = driver.execute("PRAGMA data_version").fetchone()
        if version != last:
            last = version
            yield
