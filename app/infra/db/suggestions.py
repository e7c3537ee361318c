"""Names in the database that are near to an unknown name, at a bounded cost."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, Final

from sqlalchemy import ColumnElement, select, union_all
from sqlalchemy.orm import InstrumentedAttribute

from app.infra.db.database import Reader
from app.near_names import did_you_mean

__all__ = ["may_suggest", "names_around", "near_name"]

may_suggest: ContextVar[bool] = ContextVar("may_suggest", default=True)
"""Whether the caller may read the names; the edge sets it for each request."""

_MAX_ROWS: Final = 150
"""The most names that are read on each side of the unknown name."""


def near_name(
    session: Reader,
    column: InstrumentedAttribute[str],
    within: ColumnElement[bool],
    name: str,
) -> str:
    """``; did you mean 'acme/base'?`` for an unknown name; empty if no known name is near.

    Args: as :func:`names_around`.
    """
    return did_you_mean(name, names_around(session, column, within, name))


def names_around(
    session: Reader,
    column: InstrumentedAttribute[str],
    within: ColumnElement[bool],
    name: str,
) -> list[str]:
    """Known names that an unknown one may stand for; none if the caller may not read names.

    They are before and after the unknown one in the order of an index, also in lower case. So in a
    small space they are all names, and in a large space names that begin alike.

    Args:
        column: the column of the names; its index begins with the columns of ``within``.
        within: conditions for the rows that the caller may see: those of one tenant, of one space.
        name: a valid name that no such row has.
    """
    if not may_suggest.get():
        return []

    def some(condition: ColumnElement[bool], order: Any) -> Any:
        rows = select(column).where(within, condition).order_by(order).limit(_MAX_ROWS)
        return select(rows.subquery())

    query = union_all(
        some(column > name, column),
        some(column < name, column.desc()),
        some(column.in_([name.lower(), name.casefold()]), column),
    )
    return list(session.scalars(query))
