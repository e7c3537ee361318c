"""The output: aligned columns for people, JSON in the service's shapes for programs.

It never writes anywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

__all__ = ["Answer", "counted", "fields_of", "noted", "one_line", "pairs", "table"]


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a command.

    Attributes:
        text: for people, without a newline at its end.
        fields: for programs, printed with ``--json``.
        notes: remarks, a sentence each.
    """

    text: str
    fields: Mapping[str, Any]
    notes: tuple[str, ...] = ()


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Columns under their names, the first to the left, the others to the right."""
    lines = [columns, *([one_line(cell) for cell in row] for row in rows)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(columns))]
    return "\n".join(
        "  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]).rstrip()
        for line in lines
    )


def pairs(items: Mapping[str, str]) -> str:
    """A name and a value each line."""
    width = max(map(len, items))
    return "\n".join(f"{name.ljust(width)}  {one_line(value)}" for name, value in items.items())


def counted(count: int, noun: str) -> str:
    """``1 tensor``, ``1,234 tensors``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def noted(note: str | None) -> tuple[str, ...]:
    """The note of an answer, if it has one, as notes."""
    return () if note is None else (note,)


def one_line(text: str) -> str:
    """The text with unprintable characters escaped, since untrusted names may move the cursor."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def fields_of(value: Any) -> dict[str, Any]:
    """A result of the client as JSON's types."""
    return asdict(value, dict_factory=_plain)


def _plain(items: list[tuple[str, Any]]) -> dict[str, Any]:
    return {k: v.isoformat() if isinstance(v, datetime) else v for k, v in items}
