"""Conditions of the models that meet a filter.

Tags, prefixes and bases are found by an index. A text reads the names, bases and sources of a
space, and an attribute the attributes of all models that meet the rest.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Dialect,
    Numeric,
    Text,
    case,
    cast,
    func,
    literal,
    or_,
    select,
    true,
)

from app.infra.db.tables.catalog import ModelRow, TagRow
from app.models.catalog.records import ModelFilter
from app.models.catalog.repositories.bases import declares_any

__all__ = ["conditions", "tag_conditions"]

_LAST_CHARACTER: Final = "\U0010ffff"
_LITERALS: Final = ("true", "false")


def conditions(wanted: ModelFilter, dialect: Dialect) -> Iterator[ColumnElement[bool]]:
    """Conditions that together require what the filter asks for.

    Args:
        dialect: the database's dialect, since each dialect reads JSON differently.
    """
    yield from tag_conditions(wanted.tags)
    if wanted.prefix:
        # A range, which the index of names gives. LIKE would read all of them.
        yield ModelRow.name >= wanted.prefix
        yield ModelRow.name < wanted.prefix + _LAST_CHARACTER
    if wanted.base_model is not None:
        yield declares_any([wanted.base_model])
    if wanted.text:
        listed = cast(ModelRow.base_models, Text)
        texts = (ModelRow.name, ModelRow.base_model, ModelRow.source, listed)
        yield or_(*(text.icontains(wanted.text, autoescape=True) for text in texts))
    has = _has_on_sqlite if dialect.name == "sqlite" else _has_on_postgres
    for key, value in wanted.attributes:
        yield has(key, value)


def tag_conditions(tags: Iterable[str]) -> list[ColumnElement[bool]]:
    """Conditions that together require every one of ``tags``."""
    return [
        ModelRow.id.in_(select(TagRow.model_id).where(TagRow.tag == tag))
        for tag in dict.fromkeys(tags)
    ]


def _has_on_sqlite(key: str, value: str | None) -> ColumnElement[bool]:
    """Whether the attributes have this key, by name: a path could not hold a quote."""
    entries = func.json_each(ModelRow.attributes).table_valued("key", "atom", "type")
    found = select(literal(1)).select_from(entries).where(entries.c.key == key)
    return found.where(_is_on_sqlite(entries.c, value)).exists()


def _is_on_sqlite(entry: Any, value: str | None) -> ColumnElement[bool]:
    if value is None:
        return true()
    same: list[ColumnElement[bool]] = [(entry.type == "text") & (entry.atom == value)]
    if value in _LITERALS:
        same.append(entry.type == value)
    if (number := _number(value)) is not None:
        same.append(entry.type.in_(("integer", "real")) & (entry.atom == number))
    return or_(*same)


def _has_on_postgres(key: str, value: str | None) -> ColumnElement[bool]:
    entry = ModelRow.attributes.op("->")(key)
    if value is None:
        return entry.is_not(None)
    text = ModelRow.attributes.op("->>")(key)
    json_type = func.json_typeof(entry)
    same: list[ColumnElement[bool]] = [(json_type == "string") & (text == value)]
    if value in _LITERALS:
        same.append((json_type == "boolean") & (text == value))
    if (number := _number(value)) is not None:
        # Not every text is a number, and only CASE keeps the cast from being tried on it.
        same.append(case((json_type == "number", cast(text, Numeric)), else_=None) == number)
    return or_(*same)


def _number(value: str) -> float | int | None:
    """The number that a text spells; None if it spells none."""
    for number_type in (int, float):
        try:
            number = number_type(value)
        except ValueError:
            continue
        return number if math.isfinite(number) and abs(number) < 2**63 else None
    return None
