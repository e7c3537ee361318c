"""The print of answers: a table of at most 20 lines and the notes, also in a notebook.

A table is read off the fields of a dataclass: its rows are the field that holds dataclasses, and
the other fields stand above it, but for notes, which stand below it and are never cut. Columns in
which no row has a value are left out. Reasons of failures stand last and whole, on more lines where
they need them. Unprintable characters are escaped: names of strangers might move the cursor.
"""

from __future__ import annotations

import dataclasses
import html
import shutil
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any, ClassVar, Final

import numpy as np

from modelkin._terminal_text import cut, cut_end, minute_of, one_line, pad, width_of, wrap

__all__ = [
    "MAX_ROWS",
    "Printed",
    "Table",
    "counted",
    "excerpt",
    "listed_rows",
    "matrix_table",
    "table_of",
    "table_of_rows",
]

MAX_LINES: Final = 20
MAX_ROWS: Final = 12
"""Rows shown: with title, facts, names of columns and two remarks they are 20 lines."""
_FACT_LINES: Final = 4
_MAX_CELL: Final = 48
_MAX_FACT: Final = 300
_MAX_SENTENCE: Final = 1000
_MIN_CELL: Final = 24
_WORDY: Final = ("reason", "sentence")
"""Columns of sentences, which are cut at their end."""
_LAST: Final = "reason"
"""The column that is never cut nor left out: why something failed."""
_NO_MATHS: Final = "tex2jax_ignore mathjax_ignore"
"""Classes whose text MathJax leaves alone: a $ in a name begins no formula, with links in it."""
_FEW: Final = 3
"""Entries shown of a sequence or mapping in a cell."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table that is printed.

    Attributes:
        title: the line above the facts and rows.
        facts: names and values that stand above the table.
        columns: their names; none where the facts are all there is.
        rows: the cells of the rows shown.
        numbers: which columns are aligned to the right.
        more: how many rows are not shown; None where that is not known.
        notes: names and sentences that stand below, whole.
    """

    title: str
    facts: tuple[tuple[str, str], ...] = ()
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    numbers: tuple[bool, ...] = ()
    more: int | None = 0
    notes: tuple[tuple[str, str], ...] = ()

    def text(self, width: int | None = None) -> str:
        """The table for a terminal; ``width`` is that of this terminal by default."""
        room = width or max(shutil.get_terminal_size((100, 24)).columns, 40)
        return "\n".join(_lines(self, room))

    def html(self) -> str:
        """The table for a notebook."""
        parts = [f"<p><strong>{_safe(self.title)}</strong>"]
        parts += [f"<br><em>{_safe(name)}</em> {_safe(value)}" for name, value in self.facts]
        parts.append("</p>")
        if self.columns:
            head = "".join(f'<th scope="col">{_safe(name)}</th>' for name in self.columns)
            parts.append(f"<table><thead><tr>{head}</tr></thead><tbody>")
            parts += [
                "<tr>" + "".join(map(_html_cell, row, self.numbers)) + "</tr>" for row in self.rows
            ]
            parts.append("</tbody></table>")
        if self.more != 0:
            parts.append(f"<p>{_more(self.more)}</p>")
        parts += [f"<p><em>{_safe(name)}</em> {_safe(note)}</p>" for name, note in self.notes]
        return f'<div class="{_NO_MATHS}">{"".join(parts)}</div>'


class Printed:
    """An answer that prints as a table: the mixin of dataclasses with ``repr=False``."""

    __slots__ = ()

    _printed_rows: ClassVar[str | None] = None
    """The field whose items are the rows; by default the first that holds dataclasses."""
    _first_columns: ClassVar[tuple[str, ...]] = ()
    """The columns that stand first: columns that do not fit on a line are left out at its end."""
    _listed: ClassVar[tuple[str, ...]] = ()
    """Of a row of a listing: the columns that stand first in its table."""
    _sentences: ClassVar[tuple[str, ...]] = ("note",)
    """The fields that stand below, whole: their meaning is lost where they are cut."""

    def _table(self) -> Table:
        fields = _shown_fields(self)
        counts = {name: value for name, value in fields.items() if _has_rows(name, value)}
        chosen = self._printed_rows or next(iter(counts), None)
        told = [counted(len(value), name) for name, value in counts.items()]
        title = ", ".join([type(self).__name__, *told])
        facts = (
            (name, value)
            for name, value in fields.items()
            if name not in (*counts, *self._sentences) and _has_news(self, name)
        )
        notes = ((name, fields[name]) for name in self._sentences if name in fields)
        rows = counts.get(chosen or "", ())
        more = len(rows) - MAX_ROWS
        return table_of_rows(title, rows[:MAX_ROWS], more, facts, self._first_columns, notes)

    def __repr__(self) -> str:
        return self._table().text()

    def _repr_html_(self) -> str:
        return self._table().html()


def counted(count: int, name: str) -> str:
    """A number with the name of a field that holds so many, in the singular where it is one."""
    if count == 1:
        name = f"{name[:-3]}y" if name.endswith("ies") else name.removesuffix("s")
    return f"{count:,} {name}"


def table_of(answer: Printed) -> Table:
    """The table that an answer prints as, for another width."""
    return answer._table()


def table_of_rows(
    title: str,
    rows: Iterable[Any],
    more: int | None = 0,
    facts: Iterable[tuple[str, Any]] = (),
    first: Sequence[str] = (),
    notes: Iterable[tuple[str, Any]] = (),
) -> Table:
    """A table of dataclasses.

    Args:
        title: the line above the facts and rows.
        rows: the rows shown.
        more: how many are not shown; less than 0 counts as 0, None says that it is not known.
        facts: stand above the table, where they have a value.
        first: columns that stand before the others, each in one cell.
        notes: stand below the table where they have a value.
    """
    flat = [dict(_columns(row, first)) for row in rows]
    told = dict.fromkeys(name for row in flat for name, value in row.items() if _is_told(value))
    ordered = dict.fromkeys([*(name for name in first if name in told), *told])
    names = sorted(ordered, key=lambda name: name == _LAST)
    room = {name: _MAX_SENTENCE if name in _WORDY else _MAX_CELL for name in names}
    return Table(
        title,
        tuple((name, excerpt(value, _MAX_FACT)) for name, value in facts if _is_told(value)),
        tuple(names),
        tuple(tuple(excerpt(row.get(name), room[name]) for name in names) for row in flat),
        tuple(all(_is_number(row.get(name)) for row in flat) for name in names),
        more if more is None else max(more, 0),
        tuple((name, note) for name, note in notes if _is_told(note)),
    )


def listed_rows(title: str, row_type: type[Any], rows: Sequence[Any], more: int | None) -> Table:
    """A table of a listing: first the columns that its rows are told apart by."""
    return table_of_rows(title, rows[:MAX_ROWS], more, first=getattr(row_type, "_listed", ()))


def excerpt(value: Any, width: int = _MAX_CELL) -> str:
    """A value on one line of at most ``width`` characters; a dash where there is none."""
    return cut(one_line(_words(value)), width)


def _words(value: Any) -> str:
    if value is None or (isinstance(value, str | tuple | Mapping) and not value):
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, datetime):
        return minute_of(value)
    if isinstance(value, np.ndarray):
        return f"{value.dtype} of shape {value.shape}"
    if isinstance(printed := getattr(value, "printed", None), str):
        return printed
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        if type(value).__str__ is not object.__str__:
            return str(value)
        return _pairs({k: v for k, v in _shown_fields(value).items() if _is_told(v)}, len)
    if isinstance(value, Mapping):
        return _pairs(value, lambda _: _FEW)
    if isinstance(value, list | tuple | set | frozenset):
        return _few([_words(item) for item in islice(value, _FEW)], len(value))
    return str(value)


def _pairs(mapping: Mapping[Any, Any], shown: Any) -> str:
    some = islice(mapping.items(), shown(mapping))
    return _few([f"{key}={_words(value)}" for key, value in some], len(mapping))


def _few(shown: list[str], total: int) -> str:
    more = [] if total <= len(shown) else [f"and {total - len(shown):,} more"]
    return ", ".join(shown + more)


def _number(value: float) -> str:
    """Three digits after the point, and a power of ten where these say too little."""
    if value == 0 or 0.001 <= abs(value) < 1e6:
        return f"{round(value, 3) + 0.0:,.3f}"
    return f"{value:.3g}"


def _shown_fields(value: Any) -> dict[str, Any]:
    return {
        field.name: getattr(value, field.name)
        for field in dataclasses.fields(value)
        if field.repr and not field.name.startswith("_")
    }


def _columns(row: Any, whole: Sequence[str] = ()) -> Iterator[tuple[str, Any]]:
    """The cells of a row; a dataclass in it gives its fields as columns, unless it stays whole."""
    for name, value in _shown_fields(row).items():
        if name not in whole and dataclasses.is_dataclass(value) and not isinstance(value, type):
            yield from _shown_fields(value).items()
        else:
            yield name, value


def _has_rows(name: str, value: Any) -> bool:
    """Whether a field holds rows; the items of a ranking are its rows even where it has none."""
    if not isinstance(value, tuple):
        return False
    return dataclasses.is_dataclass(value[0]) if value else name == "items"


def _has_news(value: Any, field: str) -> bool:
    """Whether a field says more than a zero that is its default."""
    default = type(value).__dataclass_fields__[field].default
    return bool(getattr(value, field) != default or getattr(value, field))


def _is_told(value: Any) -> bool:
    """Whether a value says anything: neither None, nor empty, nor False, nor "not a number"."""
    if isinstance(value, str | tuple | Mapping):
        return bool(value)
    return value is not None and value is not False and value == value


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _lines(table: Table, room: int) -> list[str]:
    lines = [cut(one_line(table.title), room), *_fact_lines(table, room)]
    widths = _fit(table, room)
    if widths:
        for row in (table.columns, *table.rows):
            lines += _row_lines(table, row, widths)
    if table.more != 0:
        lines.append(_more(table.more))
    hidden = [name for at, name in enumerate(table.columns) if at not in widths]
    if hidden:
        lines.append(cut(f"not shown: {', '.join(hidden)}", room))
    for name, note in table.notes:
        lines += wrap(one_line(f"{name}: {note}"), room)
    return lines


def _row_lines(table: Table, row: Sequence[str], widths: Mapping[int, int]) -> Iterator[str]:
    """Yield a row in one line, and the rest of a sentence at its end in more."""
    last = max(widths)
    more = wrap(row[last], widths[last])[1:] if table.columns[last] == _LAST else []
    first = row[last] if not more else wrap(row[last], widths[last])[0]
    told = {**dict(enumerate(row)), last: first}
    cells = [
        pad(
            cut_end(told[at], width) if table.columns[at] in _WORDY else told[at],
            width,
            right=table.numbers[at],
        )
        for at, width in widths.items()
    ]
    yield "  ".join(cells).rstrip()
    margin = " " * sum(widths[at] + 2 for at in widths if at != last)
    yield from (f"{margin}{part}" for part in more)


def _fact_lines(table: Table, room: int) -> list[str]:
    """Write the facts in lines of text: a few beside a table, else one for each."""
    if not table.columns:
        wide = max((len(name) for name, _ in table.facts), default=0)
        lines = [
            f"{name.ljust(wide)}  {cut(value, max(room - wide - 2, _MIN_CELL))}"
            for name, value in table.facts
        ]
        return lines if len(lines) < MAX_LINES else [*lines[: MAX_LINES - 2], "…"]
    said = ", ".join(f"{name}: {value}" for name, value in table.facts)
    lines = [cut(line, room) for line in textwrap.wrap(said, room, break_on_hyphens=False)]
    if len(lines) > _FACT_LINES:
        lines = [*lines[: _FACT_LINES - 1], cut(lines[_FACT_LINES - 1] + " …", room)]
    return lines


def _fit(table: Table, room: int) -> dict[int, int]:
    """The widths of the columns that fit: texts are cut before a column is dropped."""
    widths = {
        at: max(width_of(row[at]) for row in (table.columns, *table.rows))
        for at in range(len(table.columns))
    }
    last = len(table.columns) - 1
    wanted, is_wordy = widths.get(last, 0), table.columns[-1:] == (_LAST,)
    if is_wordy:
        widths[last] = min(wanted, max(room // 2, _MIN_CELL))
    while sum(widths.values()) + 2 * (len(widths) - 1) > room:
        widest = max(widths, key=widths.__getitem__)
        floor = max(_MIN_CELL, width_of(table.columns[widest]))
        if widths[widest] > floor and not table.numbers[widest]:
            widths[widest] -= 1
        elif len(widths) > 1:
            del widths[max(at for at in widths if table.columns[at] != _LAST)]
        else:
            break
    if is_wordy:
        left = room - sum(widths[at] + 2 for at in widths if at != last)
        widths[last] = max(min(wanted, left), _MIN_CELL)
    return widths


def _more(count: int | None) -> str:
    return "… and more" if count is None else f"… and {count:,} more"


def _safe(text: str) -> str:
    return html.escape(one_line(text))


def _html_cell(text: str, number: bool) -> str:
    return f'<td style="text-align:{"right" if number else "left"}">{_safe(text)}</td>'


def matrix_table(
    title: str,
    names: Sequence[str],
    values: Any,
    facts: Iterable[tuple[str, Any]],
    note: str | None = None,
) -> Table:
    """A table of a square matrix: its first rows and columns, numbered as in the array."""
    few = range(min(len(names), MAX_ROWS))
    rows = tuple(
        (
            str(at),
            excerpt(names[at]),
            *(excerpt(float(value)) for value in values[at, : len(few)]),
        )
        for at in few
    )
    told = tuple((name, excerpt(value, _MAX_FACT)) for name, value in facts if _is_told(value))
    numbers = (True, False, *[True] * len(few))
    columns = ("", "model", *map(str, few))
    notes = (("note", note),) if note else ()
    return Table(title, told, columns, rows, numbers, len(names) - len(few), notes)
