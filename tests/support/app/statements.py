"""The SQL that a use case executes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import event

from app.infra.db.database import Database

__all__ = ["statements"]


def statements(database: Database, do: Callable[[], Any]) -> list[str]:
    """The SQL that ``do`` executes."""
    found: list[str] = []

    def heard(*arguments: Any) -> None:
        found.append(arguments[2])

    with database.reading() as session:
        engine = session.get_bind()
    event.listen(engine, "before_cursor_execute", heard)
    try:
        do()
    finally:
        event.remove(engine, "before_cursor_execute", heard)
    return found
