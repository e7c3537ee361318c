"""Pages of a listing, the ``UNCHANGED`` sentinel, and tables for pandas."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Generic, TypeVar

from modelkin.errors import MissingExtra

__all__ = ["Page", "UNCHANGED", "Unchanged", "table"]


T = TypeVar("T")


class Unchanged(Enum):
    """The type of :data:`UNCHANGED`, apart from ``None`` because ``None`` clears a field."""

    UNCHANGED = "unchanged"

    def __repr__(self) -> str:
        return "UNCHANGED"


UNCHANGED: Final = Unchanged.UNCHANGED
"""Leave the field as it is: the default of ``update_model``'s ``source`` and ``base_model``."""


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """One page of a listing; ``next_cursor`` is None on the last."""

    items: tuple[T, ...]
    next_cursor: str | None


def table(rows: Iterable[Any], row_type: type[Any]) -> Any:
    """A ``pandas.DataFrame`` with one row an item and the fields of ``row_type`` as columns.

    Raises:
        MissingExtra: pandas is not installed.
    """
    frame = _pandas().DataFrame
    columns = [f.name for f in dataclasses.fields(row_type)]
    records = [tuple(getattr(row, column) for column in columns) for row in rows]
    return frame.from_records(records, columns=columns)


def _pandas() -> Any:
    try:
        return importlib.import_module("pandas")
    except ImportError as error:
        raise MissingExtra("pandas", "pandas") from error
