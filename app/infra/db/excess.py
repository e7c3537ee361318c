"""The rows beyond a bound, counted in the statement that deletes them.

Two processes that prune at once so delete no more than one would.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import ScalarSelect, Select, case, select

__all__ = ["excess_of"]


def excess_of(counted: Select[Any], kept: int, limit: int) -> ScalarSelect[int]:
    """How many rows there are beyond ``kept``, at most ``limit``: a limit of a statement.

    Args:
        counted: selects the number of rows.
        kept: how many may stay.
        limit: of a batch.
    """
    rows = counted.subquery()
    [count] = rows.c
    excess = case((count >= kept + limit, limit), (count > kept, count - kept), else_=0)
    return select(excess).select_from(rows).scalar_subquery()
