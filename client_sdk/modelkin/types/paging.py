"""Pages and rows of a listing, the ``UNCHANGED`` sentinel, and tables for pandas."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, overload

from modelkin._printing import MAX_ROWS, Printed, Table, counted, listed_rows
from modelkin.errors import MissingExtra

if TYPE_CHECKING:
    import pandas

__all__ = ["Page", "Rows", "UNCHANGED", "Unchanged", "data_frame", "table"]

T = TypeVar("T")


class Unchanged(Enum):
    """The type of :data:`UNCHANGED`, apart from ``None`` because ``None`` clears a field."""

    UNCHANGED = "unchanged"

    def __repr__(self) -> str:
        return "UNCHANGED"


UNCHANGED: Final = Unchanged.UNCHANGED
"""The default of every field that an update may change: leave the field as it is."""


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """One page of a listing; the last has no ``next_cursor``."""

    items: tuple[T, ...]
    next_cursor: str | None = None


@dataclass(frozen=True, slots=True, repr=False)
class Rows(Printed, Sequence[T], Generic[T]):
    """Rows of a listing that were read: a sequence, whose slices print as tables too.

    Attributes:
        items: the rows.
        row: their type, whose fields are the columns of a table.
    """

    items: tuple[T, ...]
    row: type[T]

    def __len__(self) -> int:
        return len(self.items)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Rows[T]: ...
    def __getitem__(self, index: int | slice) -> T | Rows[T]:
        if isinstance(index, slice):
            return Rows(self.items[index], self.row)
        return self.items[index]

    def _table(self) -> Table:
        title = f"{self.row.__name__}, {counted(len(self.items), 'items')}"
        return listed_rows(title, self.row, self.items, len(self.items) - MAX_ROWS)

    def to_pandas(self) -> pandas.DataFrame:
        """A ``pandas.DataFrame`` with one row an item and its fields as columns.

        Raises:
            MissingExtra: pandas is not installed.
        """
        return table(self.items, self.row)


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
