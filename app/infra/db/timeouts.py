"""Postgres connections with a timeout on every query.

A paused server, or a network that drops packets, neither answers nor fails. No timeout of the
server can fire then, and TCP keeps such a connection for minutes or longer. So every wait of the
driver has a limit here, after which the connection is closed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import psycopg
from psycopg.abc import PQGen
from psycopg.pq import TransactionStatus
from sqlalchemy import Connection, Engine, event

__all__ = ["limit_waits", "without_limit"]

T = TypeVar("T")


class TimeoutConnection(psycopg.Connection[Any]):
    """Waits at most ``max_wait_s`` seconds for each answer; None: without a limit."""

    max_wait_s: float | None = None

    def wait(self, gen: PQGen[T], interval: float = 0.1, timeout: float | None = None) -> T:
        try:
            return super().wait(gen, interval, self.max_wait_s if timeout is None else timeout)
        except psycopg.OperationalError as error:
            if timeout is not None or self.pgconn.transaction_status != TransactionStatus.ACTIVE:
                raise
            self.pgconn.finish()  # a late answer would go to the next query
            raise psycopg.OperationalError(
                f"the server has said nothing for {self.max_wait_s:g} seconds"
            ) from error


def limit_waits(engine: Engine, max_wait_s: float) -> None:
    """Limit each wait of all connections of ``engine`` for an answer."""

    @event.listens_for(engine, "do_connect")
    def connect(
        _dialect: object, _record: object, arguments: tuple[Any, ...], options: dict[str, Any]
    ) -> TimeoutConnection:
        connection = TimeoutConnection.connect(*arguments, **options)
        connection.max_wait_s = max_wait_s
        return connection


@contextmanager
def without_limit(connection: Connection) -> Iterator[None]:
    """Lift the limit, as a migration of much data needs."""
    driver = connection.connection.driver_connection
    if not isinstance(driver, TimeoutConnection):
        yield
        return
    limit, driver.max_wait_s = driver.max_wait_s, None
    try:
        yield
    finally:
        driver.max_wait_s = limit
