"""The rows beyond a bound, counted in the statement that deletes them.

Two processes that prune at once so delete no more than one would.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import ScalarSelect, Select, case, select

__all__ = ["excess_of"]


def excess_of(counted: Select[Any], kept: int, limit: int) -> ScalarSelect[int]:
    """Count the rows beyond ``kept``, at most ``limit``, as the limit of a statement.

    Args:
        counted: a query of the number of rows.
        kept: the number of rows that may stay.
        limit: the most rows of a batch.
    """
    rows = counted.subquery()
    [count] = rows.c
    excess = case((count >= kept + limit, limit), (count > kept, count - kept), else_=0)
    return select(excess).select_from(rows).scalar_subquery()
