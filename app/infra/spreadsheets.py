"""Tables as CSV (RFC 4180), for spreadsheets.

A spreadsheet takes a cell that begins with ``=``, ``+``, ``-`` or ``@`` for a formula, and names
come from strangers. Such a text gets an apostrophe before it, as spreadsheets write texts.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from modelkin._terminal_text import one_line

__all__ = ["Cell", "Row", "spreadsheet_pieces"]

Cell: TypeAlias = str | int | float | bool | None
Row: TypeAlias = Mapping[str, Cell]

_FORMULAS: Final = ("=", "+", "-", "@", "\t", "\r")
_BYTE_ORDER_MARK: Final = "\ufeff"
"""Without it, spreadsheets take UTF-8 for another encoding."""
_PIECE: Final = 1 << 17
"""Characters of a piece."""


def spreadsheet_pieces(columns: Sequence[str], rows: Iterable[Row]) -> Iterator[bytes]:
    """A table in UTF-8, piece by piece; a cell that a row lacks is empty.

    Args:
        columns: their names, which are the first row.
    """
    lines = io.StringIO(newline="")
    lines.write(_BYTE_ORDER_MARK)
    writer = csv.DictWriter(lines, columns, restval="")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: _cell(value) for name, value in row.items()})
        if lines.tell() > _PIECE:
            yield lines.getvalue().encode()
            lines.seek(0)
            lines.truncate()
    yield lines.getvalue().encode()


def _cell(value: Cell) -> Cell:
    """A cell that no spreadsheet computes, on one line."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, str):
        return value
    text = one_line(value)
    return f"'{text}" if value.lstrip().startswith(_FORMULAS) or text.startswith("'") else text
