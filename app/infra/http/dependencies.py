"""Parameters that many operations have: page limits and cursors."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

__all__ = ["Cursor", "K", "Limit"]

K = Annotated[int, Query(ge=1, le=1000, description="how many")]
Limit = Annotated[int, Query(ge=1, le=1000, description="how many on a page")]
Cursor = Annotated[str | None, Query(description="the `next_cursor` of the page before")]
