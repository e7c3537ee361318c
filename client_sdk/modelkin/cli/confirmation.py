"""The question before a command that cannot be undone."""

from __future__ import annotations

import argparse
import sys

from modelkin._terminal_text import one_line
from modelkin.errors import InvalidParameter

__all__ = ["confirm"]


def confirm(arguments: argparse.Namespace, what: str) -> None:
    """Ask on a terminal before an action, unless ``--yes`` is given.

    Args:
        arguments: the command's arguments, with ``yes``.
        what: the action, ``delete acme/base``.

    Raises:
        InvalidParameter: there is no terminal, or the answer is no.
    """
    if arguments.yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise InvalidParameter(f"this would {what}, and there is no terminal to ask on: add --yes")
    sys.stderr.write(f"{one_line(what[0].upper() + what[1:])}? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        raise InvalidParameter("nothing was done")
