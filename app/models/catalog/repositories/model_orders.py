"""Orders of a listing of models: the key of each order, and the cursor of the next page.

Each order has an index, and a key that no two models of a space share. So a page costs the same
wherever it begins, and a model whose key stays is listed once, whatever changes between pages.
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import ColumnElement, Select, tuple_
from sqlalchemy.orm import InstrumentedAttribute

from app.infra.db.pagination import decode_cursor, decode_number_cursor, decode_pair_cursor
from app.infra.db.tables.catalog import ModelRow
from app.models.catalog.records import ModelOrder, ModelRecord

__all__ = ["after", "cursor_key", "apply_order"]

_DESCENDING: Final = frozenset[ModelOrder](("newest", "largest", "most_revised"))

_COUNTS: Final[dict[ModelOrder, InstrumentedAttribute[int]]] = {
    "largest": ModelRow.support_size,
    "smallest": ModelRow.support_size,
    "most_revised": ModelRow.revision,
}
"""Orders by a number that models share: among those with the same, by name."""


def apply_order(query: Select[ModelRow], order: ModelOrder) -> Select[ModelRow]:
    """The query in this order."""
    columns: tuple[InstrumentedAttribute[Any], ...] = (ModelRow.version,)
    if order == "name":
        columns = (ModelRow.name,)
    elif order in _COUNTS:
        columns = (_COUNTS[order], ModelRow.name)
    return query.order_by(*(each.desc() if order in _DESCENDING else each for each in columns))


def after(cursor: str, order: ModelOrder) -> ColumnElement[bool]:
    """The condition of a row that comes after a cursor of this order."""
    if order == "name":
        return ModelRow.name > decode_cursor(cursor)
    if order in _COUNTS:
        row, begin = tuple_(_COUNTS[order], ModelRow.name), tuple_(*decode_pair_cursor(cursor))
        return row < begin if order in _DESCENDING else row > begin
    version = decode_number_cursor(cursor)
    return ModelRow.version < version if order == "newest" else ModelRow.version > version


def cursor_key(model: ModelRecord, order: ModelOrder) -> str:
    """The key of the cursor after this model."""
    if order == "name":
        return model.name
    if order in _COUNTS:
        return f"{getattr(model, _COUNTS[order].key)} {model.name}"
    return str(model.version)
