"""Statements that the databases of a test process share, once one of them has compiled them.

SQLAlchemy keeps them for each engine, which suits a service: it opens two. Tests open hundreds, and
each would compile all that it asks once more.
"""

from __future__ import annotations

from functools import wraps
from typing import Any

from sqlalchemy import util
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite

from app.infra.db import database
from app.infra.db.engines import Engines, connect

__all__ = ["share"]

_STATEMENTS: Any = util.LRUCache(2000)


def share() -> None:
    """Let every database that is opened from now on take part."""
    for kind in (SQLiteDialect_pysqlite, PGDialect_psycopg):
        # What is compiled is kept by its dialect, of which each engine has one of its own.
        kind.__eq__ = _is_alike  # type: ignore[method-assign]
        kind.__hash__ = _hash_of_kind  # type: ignore[method-assign, assignment]
    database.connect = _sharing  # type: ignore[attr-defined]


@wraps(connect)
def _sharing(*args: Any, **options: Any) -> Engines:
    engines = connect(*args, **options)
    for engine in (engines.reading, engines.writing):
        engine.update_execution_options(compiled_cache=_STATEMENTS)
    return engines


def _is_alike(dialect: object, other: object) -> bool:
    return type(dialect) is type(other)


def _hash_of_kind(dialect: object) -> int:
    return hash(type(dialect))
