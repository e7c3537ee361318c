"""Standard input and output in place of files: ``-`` where a command takes a path.

The commands see files of a temporary folder, so that none of them knows the difference.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from modelkin.errors import InvalidParameter

__all__ = ["DASH", "standard_streams"]

DASH: Final = "-"


@contextmanager
def standard_streams(arguments: argparse.Namespace) -> Iterator[bool]:
    """Put files in place of each ``-`` among the inputs and outputs of a command.

    ``arguments.streams`` maps parts of their names to the words that messages show instead.

    Yields:
        Whether the output file is standard output, so that the answer goes to standard error.

    Raises:
        InvalidParameter: standard input or output is a terminal.
    """
    sources = [name for name in arguments.inputs if getattr(arguments, name, None) == DASH]
    targets = [name for name in arguments.outputs if getattr(arguments, name, None) == DASH]
    arguments.streams = {}
    if not sources and not targets:
        yield False
        return
    _refuse_terminals(sources, targets)
    with TemporaryDirectory(prefix="modelkin-") as folder:
        for name in sources:
            path = Path(folder) / "standard input"
            with path.open("wb") as file:
                shutil.copyfileobj(sys.stdin.buffer, file)
            setattr(arguments, name, os.fspath(path))
        for name in targets:
            setattr(arguments, name, os.fspath(Path(folder) / "standard output"))
        arguments.streams = {f"{folder}{os.sep}": ""}
        yield bool(targets)
        for name in targets:
            with open(getattr(arguments, name), "rb") as file:
                shutil.copyfileobj(file, sys.stdout.buffer)
            sys.stdout.buffer.flush()


def _refuse_terminals(sources: list[str], targets: list[str]) -> None:
    if sources and sys.stdin.isatty():
        raise InvalidParameter(
            "- is standard input, and that is this terminal: pipe a file into it"
        )
    if targets and sys.stdout.isatty():
        raise InvalidParameter("- is standard output, and that is this terminal: redirect it")
