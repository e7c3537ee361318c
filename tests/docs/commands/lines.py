"""The command lines of pages, in blocks and in sentences, and what is printed below them."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["PAGES", "ROOT", "Line", "in_sentences", "lines"]

ROOT = Path(__file__).parents[3]
PAGES = sorted(
    str(path.relative_to(ROOT))
    for path in (
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        ROOT / "client_sdk" / "README.md",
        *(ROOT / "docs").rglob("*.md"),
    )
)
_FENCE = re.compile(r"^ *```(\w+)[^\n]*\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
_SPAN = re.compile(r"`(modelkin [a-z][^`]*)`")


@dataclass(frozen=True)
class Line:
    """A command as a page has it.

    Attributes:
        shown: what the page says that it prints; None where it says nothing of that.
    """

    command: str
    shown: str | None = None


def lines(page: str) -> list[Line]:
    """The commands in the blocks of a page, in order."""
    found: list[Line] = []
    for kind, text in _FENCE.findall((ROOT / page).read_text()):
        if kind == "console":
            parts = re.split(r"^\$ ", textwrap.dedent(text), flags=re.MULTILINE)[1:]
            found += [
                Line(each.partition("\n")[0], each.partition("\n")[2] or None) for each in parts
            ]
        elif kind == "sh":
            found += map(Line, _of_shell(textwrap.dedent(text)))
    return found


def in_sentences(page: str) -> list[str]:
    """The commands that sentences of a page name, with at least one argument."""
    text = _FENCE.sub("", (ROOT / page).read_text())
    spans = (" ".join(each.split()) for each in _SPAN.findall(text))
    return [each for each in spans if len(each.split()) > 2]


def _of_shell(text: str) -> Iterator[str]:
    """Whole commands: a line that a quote or a backslash leaves open goes on in the next."""
    waiting = ""
    for line in text.splitlines():
        waiting += f"{line}\n"
        if line.endswith("\\"):
            continue
        try:
            words = shlex.split(waiting, comments=True)
        except ValueError:  # a quote is open
            continue
        if words:
            yield waiting.replace("\\\n", " ").strip()
        waiting = ""
    assert not waiting, waiting
