"""The output of a command: lines for people as they come, or one JSON object for programs.

The shapes are those of the command ``modelkin``: an answer has the fields of the HTTP API and
``notes``, an error is a problem document.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from app.infra.errors import explain
from modelkin._terminal_text import one_line
from modelkin.errors import ModelkinError

__all__ = ["Output", "problem"]


class Output:
    """The output of one command.

    Args:
        as_json: whether standard output gets one object at the end instead of lines, and standard
            error nothing but an error.
    """

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._notes: list[str] = []
        self.fields: dict[str, Any] = {}

    def line(self, text: str) -> None:
        """A line of the answer."""
        if not self._as_json:
            print(text, flush=True)

    def note(self, text: str) -> None:
        """A remark beside the answer."""
        if self._as_json:
            self._notes.append(text)
        else:
            print(text, file=sys.stderr)

    def warn(self, text: str) -> None:
        """A remark that something is wrong; it begins with the name of the project."""
        self.note(text if self._as_json else f"modelkin: {one_line(text)}")

    def table(self, rows: Sequence[Sequence[str]]) -> None:
        """Print rows of cells as a table; the first row has the titles."""
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        for row in rows:
            cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            self.line("  ".join(cells).rstrip())

    def finish(self) -> None:
        """Print the object, if one is asked for; ``notes`` are in it."""
        if self._as_json:
            print(json.dumps({**self.fields, "notes": self._notes}, default=_plain), flush=True)

    def fail(self, title: str, code: str, details: Sequence[str]) -> None:
        """Say why there is no answer: a line for each detail, or one object."""
        if self._as_json:
            error = {"title": title, "code": code, "detail": "; ".join(details)}
            print(json.dumps(error), file=sys.stderr)
            return
        for detail in details:
            print(f"modelkin: {one_line(detail)}", file=sys.stderr)


def problem(error: ModelkinError) -> dict[str, str]:
    """An error as a problem document, without a status: there is no request."""
    return {"title": type(error).__name__, "code": error.code, "detail": explain(error)}


def _plain(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value)
