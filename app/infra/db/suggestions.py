"""Names in the database that are near to one that is not there, at a bounded cost."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, Final

from sqlalchemy import ColumnElement, select, union_all
from sqlalchemy.orm import InstrumentedAttribute

from app.infra.db.database import Reader
from app.near_names import did_you_mean

__all__ = ["may_suggest", "near_name"]

may_suggest: ContextVar[bool] = ContextVar("may_suggest", default=True)
"""Whether the caller may read the names; the edge sets it for each request."""

_MAX_ROWS: Final = 150
"""Names that are read on each side of the one that is not there."""


def near_name(
    session: Reader,
    column: InstrumentedAttribute[str],
    within: ColumnElement[bool],
    name: str,
) -> str:
    """``; did you mean 'acme/base'?`` for a name that is not there; empty if no other is near.

    It is empty too where the caller may not read names, see :data:`may_suggest`.

    It compares the names before and after it in their order, which an index gives, and those in
    lower case. So of a small space it compares all names, of a large one those that begin alike.

    Args:
        column: of the names, of an index that begins with what ``within`` asks for.
        within: the rows that the caller may see: of one tenant, of one space.
        name: valid, and in no row of them.
    """

    if not may_suggest.get():
        return ""

    def some(condition: ColumnElement[bool], order: Any) -> Any:
        rows = select(column).where(within, condition).order_by(order).limit(_MAX_ROWS)
        return select(rows.subquery())

    query = union_all(
        some(column > name, column),
        some(column < name, column.desc()),
        some(column.in_([name.lower(), name.casefold()]), column),
    )
    return did_you_mean(name, session.scalars(query))
