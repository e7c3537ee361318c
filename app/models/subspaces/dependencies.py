"""The parameter of endpoints that chooses the compared blocks of data subspaces."""

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
