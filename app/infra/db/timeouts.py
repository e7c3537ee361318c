"""Postgres connections with a timeout on every query.

A paused server, or a network that drops packets, neither answers nor fails: no timeout of the
server can fire, and TCP keeps such a connection for minutes or for good. So every wait of the
driver has a timeout here, after which the connection is closed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import psycopg
from psycopg.abc import PQGen
from psycopg.pq import TransactionStatus
from sqlalchemy import Connection, Engine, event

__all__ = ["bound", "without_bound"]

T = TypeVar("T")


class TimeoutConnection(psycopg.Connection[Any]):
    """Waits for each answer ``timeout_s`` seconds at most; without a limit if that is None."""

    timeout_s: float | None = None

    def wait(self, gen: PQGen[T], interval: float = 0.1, timeout: float | None = None) -> T:
        try:
            return super().wait(gen, interval, self.timeout_s if timeout is None else timeout)
        except psycopg.OperationalError as error:
            if timeout is not None or self.pgconn.transaction_status != TransactionStatus.ACTIVE:
                raise
            self.pgconn.finish()  # a late answer must not be read as that of the next query
            raise psycopg.OperationalError(
                f"the server has said nothing for {self.timeout_s:g} seconds"
            ) from error


def bound(engine: Engine, timeout_s: float) -> None:
    """Limit the wait of every connection of ``engine`` for one answer."""

    @event.listens_for(engine, "do_connect")
    def connect(
        _dialect: object, _record: object, arguments: tuple[Any, ...], options: dict[str, Any]
    ) -> TimeoutConnection:
        connection = TimeoutConnection.connect(*arguments, **options)
        connection.timeout_s = timeout_s
        return connection


@contextmanager
def without_bound(connection: Connection) -> Iterator[None]:
    """Lift the timeout for the length of the block, for migrations of much data."""
    driver = connection.connection.driver_connection
    if not isinstance(driver, TimeoutConnection):
        yield
        return
    timeout_s, driver.timeout_s = driver.timeout_s, None
    try:
        yield
    finally:
        driver.timeout_s = timeout_s
