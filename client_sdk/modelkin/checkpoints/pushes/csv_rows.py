"""``rows_of``: the rows of a CSV file that a person wrote, with the numbers of their lines."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from modelkin.errors import InvalidParameter

__all__ = ["rows_of", "wrong_line"]

_MAX_BYTES: Final = 64 << 20


def rows_of(path: Path, field: str) -> Iterator[tuple[int, list[str]]]:
    """The number of each line, from 1 on, with its cells stripped; lines without a word are left
    out. Spreadsheets put a byte order mark before UTF-8, which is no part of the first cell.

    Args:
        path: the file.
        field: what errors call it.

    Raises:
        InvalidParameter: it is not UTF-8, no CSV or too large; names the line.
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        data = file.read(_MAX_BYTES + 1)
    if len(data) > _MAX_BYTES:
        raise InvalidParameter(f"{path}: it has at most {_MAX_BYTES >> 20} MiB", field=field)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise wrong_line(path, line, "it is not UTF-8: save it so", field) from None
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        for cells in reader:
            if any(cell.strip() for cell in cells):
                yield reader.line_num, [cell.strip() for cell in cells]
    except csv.Error as error:
        raise wrong_line(path, reader.line_num, f"it is not CSV ({error})", field) from None


def wrong_line(path: Path, line: int, why: str, field: str) -> InvalidParameter:
    """The refusal of a line."""
    return InvalidParameter(f"{path}: line {line}: {why}", field=field)
