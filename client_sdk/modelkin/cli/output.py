"""The output: aligned columns for people, JSON in the service's shapes for programs.

Nothing is printed here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Final

from modelkin._terminal_text import one_line, width_of
from modelkin.cli.style import HEAD, Styled, paint

__all__ = ["Answer", "as_notes", "fields_of", "names", "pairs", "quantity", "table"]

_NUMBER: Final = re.compile(r"[-±]?[0-9][0-9,.]*(%|[smhd])?|-|exact|")
"""A cell that is aligned to the right if all cells of its column match."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a command.

    Attributes:
        text: the answer for people, without a newline at its end.
        fields: the answer for programs, printed with ``--json``.
        notes: remarks, a sentence each.
        code: the exit code.
        whole: whether the text is a document, which a terminal shows to its last line.
    """

    text: str
    fields: Mapping[str, Any]
    notes: tuple[str, ...] = ()
    code: int = 0
    whole: bool = False


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Columns under their names: numbers to the right, other columns to the left.

    A cell may be a :class:`modelkin.cli.style.Styled`, whose style a terminal shows.
    """
    body: list[list[str]] = [[_clean(cell) for cell in row] for row in rows]
    lines: list[list[str]] = [[Styled(column, HEAD) for column in columns], *body]
    widths = [max(width_of(line[at]) for line in lines) for at in range(len(columns))]
    right = [at > 0 and _are_numbers(line[at] for line in body) for at in range(len(columns))]
    return "\n".join(
        "  ".join(_pad(*cell) for cell in zip(line, widths, right, strict=True)).rstrip()
        for line in lines
    )


def pairs(items: Mapping[str, str]) -> str:
    """Lines of a name and a value."""
    clean = {one_line(name): _clean(value) for name, value in items.items()}
    width = max(map(width_of, clean))
    return "\n".join(
        f"{paint(name, HEAD)}{' ' * (width - width_of(name))}  {_with_style(value)}"
        for name, value in clean.items()
    )


def names(found: Iterable[str]) -> str:
    """Names for other programs, one a line: as they are, but for what no name may hold."""
    return "\n".join(map(one_line, found))


def _clean(text: str) -> str:
    """The text on one line, with its style."""
    clean = one_line(text)
    return Styled(clean, text.style) if isinstance(text, Styled) else clean


def _with_style(text: str) -> str:
    return paint(text, text.style) if isinstance(text, Styled) else text


def _pad(text: str, width: int, to_the_right: bool) -> str:
    space = " " * (width - width_of(text))
    return space + _with_style(text) if to_the_right else _with_style(text) + space


def _are_numbers(cells: Iterable[str]) -> bool:
    texts = list(cells)
    return all(map(_NUMBER.fullmatch, texts)) and not {*texts} <= {"", "-"}


def quantity(count: int, noun: str) -> str:
    """A count with its noun: ``1 tensor``, ``1,234 tensors``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def as_notes(note: str | None) -> tuple[str, ...]:
    """The note of an answer, if it has one, as notes."""
    return () if note is None else (note,)


def fields_of(value: Any) -> dict[str, Any]:
    """A result of the client in JSON's types."""
    return asdict(value, dict_factory=_plain)


def _plain(items: list[tuple[str, Any]]) -> dict[str, Any]:
    return {k: v.isoformat() if isinstance(v, datetime) else v for k, v in items}
