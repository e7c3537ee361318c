"""Parameters that many operations have: page limits, cursors and media types."""

from __future__ import annotations

from typing import Annotated

from fastapi import Header, Query

__all__ = ["Accept", "Cursor", "K", "Limit"]

Accept = Annotated[
    str | None, Header(description="which of the media types of the answer; by default the first")
]

K = Annotated[int, Query(ge=1, le=1000, description="how many")]
Limit = Annotated[int, Query(ge=1, le=1000, description="how many on a page")]
Cursor = Annotated[str | None, Query(description="the `next_cursor` of the page before")]
