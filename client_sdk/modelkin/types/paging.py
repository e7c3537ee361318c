"""Pages of a listing, the ``UNCHANGED`` sentinel, and tables for pandas."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from modelkin.errors import MissingExtra

if TYPE_CHECKING:
    import pandas

__all__ = ["Page", "UNCHANGED", "Unchanged", "data_frame", "table"]

T = TypeVar("T")


class Unchanged(Enum):
    """The type of :data:`UNCHANGED`, apart from ``None`` because ``None`` clears a field."""

    UNCHANGED = "unchanged"

    def __repr__(self) -> str:
        return "UNCHANGED"


UNCHANGED: Final = Unchanged.UNCHANGED
"""Leave the field as it is: the default of every field that an update may change."""


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """One page of a listing; the last has no ``next_cursor``."""

    items: tuple[T, ...]
    next_cursor: str | None = None


def table(rows: Iterable[Any], row_type: type[Any]) -> pandas.DataFrame:
    """A ``pandas.DataFrame`` with one row an item and the fields of ``row_type`` as columns.

    Raises:
        MissingExtra: pandas is not installed.
    """
    frame = data_frame()
    columns = [f.name for f in dataclasses.fields(row_type)]
    records = [tuple(getattr(row, column) for column in columns) for row in rows]
    return frame.from_records(records, columns=columns)


def data_frame() -> type[pandas.DataFrame]:
    """The class ``pandas.DataFrame``.

    Raises:
        MissingExtra: pandas is not installed.
    """
    try:
        frame: type[pandas.DataFrame] = importlib.import_module("pandas").DataFrame
    except ImportError as error:
        raise MissingExtra("pandas", "pandas") from error
    return frame
