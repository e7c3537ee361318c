"""Pages as programs: their code blocks, run in order, and what they print."""

from __future__ import annotations

import contextlib
import io
import re
from typing import Any

_BLOCK = re.compile(r"```(\w+)( no-run)?\n(.*?)```", re.DOTALL)
_FENCE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)

_FILE = re.compile(r"^<!-- file: \S+ -->\n```.*?^```$", re.DOTALL | re.MULTILINE)


def prose(page: str) -> str:
    """A page with blanks in place of its blocks of code, so that places in it stay the same."""
    return _FENCE.sub(lambda block: " " * len(block[0]), page)


def words(text: str) -> int:
    """The number of words, code and tables included; files to copy are not read through."""
    return len(_FILE.sub("", text).split())


def blocks(page: str) -> list[tuple[str, str]]:
    """Language and content of a page's blocks, in order, without those marked no-run."""
    return [(kind, text) for kind, skipped, text in _BLOCK.findall(page) if not skipped]


def marked_blocks(page: str) -> list[str]:
    """The content of a page's blocks that are marked no-run, in order."""
    return [text for _, skipped, text in _BLOCK.findall(page) if skipped]


def run_python(source: str, page: str, namespace: dict[str, Any]) -> str:
    """What a block prints, its names kept for the next; ``page`` is named in tracebacks."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(source, page, "exec"), namespace)
    return out.getvalue()
