"""The fields of requests that clusterings and maps share."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

__all__ = ["BlocksThatMeet", "ComparedBy"]

ComparedBy = Annotated[
    Literal["auto", "exact", "signature"],
    Field(
        description="what is compared: supports (exact), signatures, or supports as far as that "
        "takes no longer than minutes"
    ),
]
BlocksThatMeet = Annotated[
    Literal["classes", "whole"] | None,
    Field(description="of data subspaces: which blocks meet; left out, as the space says"),
]
