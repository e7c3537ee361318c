"""``read_manifest``: a CSV file with the names, bases and tags of the checkpoints of a folder."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from modelkin._validation import check_model_name, check_space_name, check_tags
from modelkin.checkpoints.pushes.csv_rows import rows_of, wrong_line
from modelkin.core.quoting import quote
from modelkin.errors import InvalidName, InvalidParameter

__all__ = ["COLUMNS", "Entry", "read_manifest"]

COLUMNS: Final = ("path", "name", "base", "tags", "space")
_MAX_SHOWN: Final = 10
"""Lines that a refusal names; it counts the others."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of a manifest.

    Attributes:
        line: its number in the file.
        path: of a checkpoint, from the folder.
        name: the model's name, without a prefix; None for that of its path.
        base: the model that it derives from; None for what its files say.
        tags: its tags; None for those of its card.
        space: its space; None for that of all.
    """

    line: int
    path: str
    name: str | None = None
    base: str | None = None
    tags: tuple[str, ...] | None = None
    space: str | None = None


def read_manifest(path: str | Path) -> list[Entry]:
    """Read a manifest: a line of names of columns, and a line for each checkpoint.

    ``path`` is needed, the other columns and their cells may be left out. Tags are apart by ``;``.

    Raises:
        InvalidParameter: it is no such file; names the first lines that are wrong, and why.
        OSError: it cannot be read.
    """
    path = Path(path)
    entries, wrong, known = list[Entry](), list[str](), dict[str, int]()
    for line, row in _rows(path):
        try:
            entry = _entry(line, row)
        except InvalidParameter as error:
            wrong.append(f"line {line}: {error}")
            continue
        if entry.path in known:
            wrong.append(f"line {line}: {quote(entry.path)} is in line {known[entry.path]}, too")
        known[entry.path] = line
        entries.append(entry)
    if wrong:
        more = f"; and {len(wrong) - _MAX_SHOWN} more lines" if len(wrong) > _MAX_SHOWN else ""
        raise InvalidParameter(f"{path}: {'; '.join(wrong[:_MAX_SHOWN])}{more}", field="manifest")
    if not entries:
        raise InvalidParameter(f"{path}: it has no line of a checkpoint", field="manifest")
    return entries


def _rows(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """The cells of each line by their columns."""
    columns: list[str] | None = None
    for line, cells in rows_of(path, "manifest"):
        if columns is None:
            columns = _columns(path, line, cells)
        elif len(cells) > len(columns):
            raise _wrong(
                path,
                line,
                f"it has {len(cells)} cells, and the first line {len(columns)} columns: put "
                f"cells with commas in double quotes, and part tags by ;",
            )
        else:
            yield line, dict(zip(columns, cells, strict=False))


def _columns(path: Path, line: int, cells: list[str]) -> list[str]:
    columns = [cell.lower() for cell in cells]
    known = ", ".join(COLUMNS)
    for column in columns:
        if column not in COLUMNS:
            said = f"{quote(column)} is no column of a manifest: there are {known}"
            raise _wrong(path, line, said)
    if "path" not in columns or len({*columns}) < len(columns):
        raise _wrong(path, line, f"name each column once, and path among them: there are {known}")
    return columns


def _entry(line: int, row: dict[str, str]) -> Entry:
    """Check a line.

    Raises:
        InvalidParameter: a cell is wrong.
    """
    path, name, base = row["path"], row.get("name"), row.get("base")
    parts = path.replace("\\", "/").split("/")
    if not path:
        raise InvalidParameter("its path is empty")
    if path.startswith("/") or ".." in parts or "\0" in path:
        raise InvalidParameter(f"{quote(path)} leads out of the folder: give a path within it")
    path = "/".join(part for part in path.split("/") if part not in ("", "."))
    tags = [tag.strip() for tag in row.get("tags", "").split(";") if tag.strip()]
    try:
        return Entry(
            line,
            path or ".",
            check_model_name(name, field="name") if name else None,
            check_model_name(base, field="base") if base else None,
            tuple(check_tags(tags)) if tags else None,
            check_space_name(row["space"]) if row.get("space") else None,
        )
    except InvalidName as error:
        raise InvalidParameter(str(error)) from None


def _wrong(path: Path, line: int, why: str) -> InvalidParameter:
    return wrong_line(path, line, why, "manifest")
