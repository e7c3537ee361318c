"""The parameter that says what of data subspaces is compared, as endpoints take it."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Query

__all__ = ["CompareBy"]

CompareBy = Annotated[
    Literal["classes", "whole"] | None,
    Query(
        description="of data subspaces: whether equal classes meet, or all samples; left out, as "
        "the space says"
    ),
]
