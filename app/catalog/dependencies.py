"""Names and tags of models, as endpoint dependencies."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Path, Query

from app.catalog.origins import StatedOrigin, stated_origin
from modelkin._validation import check_model_name, check_tags
from modelkin.core.importance import IMPORTANCE_KINDS

__all__ = ["ModelName", "NewTags", "Stated", "TagFilter"]


async def _model_name(
    model: Annotated[str, Path(description="the name of the model; it may hold slashes")],
) -> str:
    return check_model_name(model)


ModelName = Annotated[str, Depends(_model_name)]


async def _new_tags(
    tag: Annotated[
        list[str] | None,
        Query(description="the model's tags, in place of those it has; repeat for several"),
    ] = None,
) -> tuple[str, ...] | None:
    return None if tag is None else check_tags([t for t in tag if t], field="tag")


NewTags = Annotated[tuple[str, ...] | None, Depends(_new_tags)]


async def _tag_filter(
    tag: Annotated[
        list[str] | None,
        Query(description="only models that carry this tag; repeat to ask for several at once"),
    ] = None,
) -> tuple[str, ...]:
    return () if tag is None else check_tags(tag, field="tag")


TagFilter = Annotated[tuple[str, ...], Depends(_tag_filter)]


async def _stated(
    importance: Annotated[
        str | None,
        Query(
            json_schema_extra={"enum": list(IMPORTANCE_KINDS)},
            description="what the support was selected by; a 409 unless it is the space's, where "
            "that states one",
        ),
    ] = None,
    base: Annotated[
        str | None,
        Query(
            description="importance=delta: the digest of the weights that differences were taken "
            "from, or `name@digest`; a 409 if the space states another"
        ),
    ] = None,
    layout: Annotated[
        str | None,
        Query(description="the digest of the layout that the indices follow, `layout_digest`"),
    ] = None,
) -> StatedOrigin:
    return stated_origin(importance, base, layout)


Stated = Annotated[StatedOrigin, Depends(_stated)]
"""What the parameters of an upload or a query say of its support."""
