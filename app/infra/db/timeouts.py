"""Connections to Postgres that wait for no answer for ever.

A server that was paused, or a network that swallows what it is given, neither answers nor fails:
no timeout of the server's own can fire, and TCP keeps such a connection for minutes or for good. So
every wait of the driver has an end here, after which the connection is closed.
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
    """Waits for each answer no longer than ``patience`` seconds; without end where that is None."""

    patience: float | None = None

    def wait(self, gen: PQGen[T], interval: float = 0.1, timeout: float | None = None) -> T:
        try:
            return super().wait(gen, interval, self.patience if timeout is None else timeout)
        except psycopg.OperationalError as error:
            if timeout is not None or self.pgconn.transaction_status != TransactionStatus.ACTIVE:
                raise
            self.pgconn.finish()  # the answer may still come, and belongs to no other question
            raise psycopg.OperationalError(
                f"the server has said nothing for {self.patience:g} seconds"
            ) from error


def bound(engine: Engine, patience: float) -> None:
    """Let no connection of ``engine`` wait longer than so many seconds for one answer."""

    @event.listens_for(engine, "do_connect")
    def connect(
        _dialect: object, _record: object, arguments: tuple[Any, ...], options: dict[str, Any]
    ) -> TimeoutConnection:
        connection = TimeoutConnection.connect(*arguments, **options)
        connection.patience = patience
        return connection


@contextmanager
def without_bound(connection: Connection) -> Iterator[None]:
    """For what may take as long as it likes, as a migration of much data does."""
    driver = connection.connection.driver_connection
    if not isinstance(driver, TimeoutConnection):
        yield
        return
    patience, driver.patience = driver.patience, None
    try:
        yield
    finally:
        driver.patience = patience
