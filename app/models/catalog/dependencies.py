"""Names and tags of models, as endpoint dependencies."""

from __future__ import annotations

import unicodedata
from typing import Annotated

from fastapi import Depends, Path, Query

from app.models.catalog.records import MAX_ATTRIBUTE_FILTERS, ModelFilter, ModelOrder
from app.models.spaces.origins import StatedOrigin, stated_origin
from modelkin._validation import check_model_name, check_tags
from modelkin.core.importance import IMPORTANCE_KINDS
from modelkin.errors import InvalidParameter

__all__ = [
    "FilteredModels",
    "ModelName",
    "NewTags",
    "Order",
    "Stated",
    "TagFilter",
    "stored_text",
]


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


_MAX_TEXT = 200


async def _model_filter(
    tags: TagFilter,
    prefix: Annotated[
        str, Query(max_length=_MAX_TEXT, description="only models whose name begins with this")
    ] = "",
    text: Annotated[
        str,
        Query(
            max_length=_MAX_TEXT,
            description="only models that have this in their name, base_model or source; ASCII "
            "letters match in either case",
        ),
    ] = "",
    attribute: Annotated[
        list[str] | None,
        Query(
            max_length=MAX_ATTRIBUTE_FILTERS,
            description="`key=value`: only models with this attribute at the top level, a text, a "
            "number, `true` or `false`; `key` alone for any value; repeat to ask for several",
        ),
    ] = None,
    base_model: Annotated[
        str | None, Query(description="only models that declare this base_model")
    ] = None,
) -> ModelFilter:
    return ModelFilter(
        tags=tags,
        prefix=stored_text(prefix, "prefix"),
        text=stored_text(text, "text"),
        attributes=tuple(_attribute(each) for each in attribute or ()),
        base_model=None if base_model is None else check_model_name(base_model, field="base_model"),
    )


FilteredModels = Annotated[ModelFilter, Depends(_model_filter)]
Order = Annotated[
    ModelOrder,
    Query(
        description="by `name`; by the last change, the `newest` or `oldest` first; by the size of "
        "the support, the `largest` or `smallest` first; or the `most_revised` first. Among those "
        "with the same number, names are in the same direction"
    ),
]


def _attribute(text: str) -> tuple[str, str | None]:
    key, sign, value = _without_nul(text, "attribute").partition("=")
    if not key or len(text) > _MAX_TEXT:
        raise InvalidParameter(
            f"an attribute is asked for as key=value, in {_MAX_TEXT} characters at most",
            field="attribute",
        )
    return key, value if sign else None


def stored_text(text: str, field: str) -> str:
    """A text as names are stored, in normal form C."""
    return unicodedata.normalize("NFC", _without_nul(text, field))


def _without_nul(text: str, field: str) -> str:
    if "\0" in text:
        raise InvalidParameter(f"{field} holds NUL, which no stored text does", field=field)
    return text


async def _read_origin(
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
    blinding: Annotated[
        str | None,
        Query(
            description="the check value of the key that the indices are blinded under; a 409 "
            "unless it is the space's, and without it in a blinded space"
        ),
    ] = None,
) -> StatedOrigin:
    return stated_origin(importance, base, layout, blinding)


Stated = Annotated[StatedOrigin, Depends(_read_origin)]
"""The statements of an upload or a query about its support."""
