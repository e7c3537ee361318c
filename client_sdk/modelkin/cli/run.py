"""The entry point: from a command line to an exit code."""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
import warnings
from collections.abc import Sequence
from typing import Any, Final

from modelkin._terminal_text import one_line
from modelkin.cli.arguments import parse
from modelkin.cli.files import standard_streams
from modelkin.cli.options import ROWS
from modelkin.cli.output import Answer
from modelkin.cli.style import for_output, is_wide_open
from modelkin.errors import ModelkinError

__all__ = ["main"]

_FAILED: Final = 1
_INTERRUPTED: Final = 130
"""128 and SIGINT, as in shells."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: the command line without the program's name; by default from ``sys.argv``.

    Returns:
        0; 1 for an error, reported in one line; 130 for an interruption. Usage errors and
        ``--help`` leave by SystemExit, with 2 and 0, as in argparse.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):  # its encoding may lack letters of names
        sys.stdout.reconfigure(errors="backslashreplace")
    words = sys.argv[1:] if argv is None else list(argv)
    if words[:1] == ["serve"]:  # the flags of this command are the service's
        return _serve(words[1:])
    arguments = parse(words)
    try:
        return _run(arguments)
    except BrokenPipeError:  # the reader has closed the pipe, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _FAILED
    except KeyboardInterrupt:
        _fail(arguments, "Interrupted", "interrupted", "interrupted")
        return _INTERRUPTED
    except MemoryError:
        _fail(arguments, "Not enough memory", "memory", "there is not enough memory for this")
    except OSError as error:
        detail = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        _fail(arguments, "File or system error", "os_error", detail)
    except ModelkinError as error:
        _fail(arguments, **_problem(error))
    return _FAILED


def _run(arguments: argparse.Namespace) -> int:
    with warnings.catch_warnings(record=True) as caught, standard_streams(arguments) as taken:
        warnings.simplefilter("always")
        answer: Answer = arguments.command(arguments)
    notes = (
        *answer.notes,
        *(str(w.message) for w in caught if issubclass(w.category, UserWarning)),
    )
    for note in notes:
        _say(_without_folder(arguments, f"note: {note}"))
    if arguments.json:
        text = json.dumps({**answer.fields, "notes": notes})
    else:
        text = answer.text if answer.whole or arguments.all else _cut(answer.text)
    text = _without_folder(arguments, text)
    out = sys.stderr if taken else sys.stdout
    out.write(for_output(text) + "\n" if text else "")
    out.flush()
    return answer.code


def _without_folder(arguments: argparse.Namespace, text: str) -> str:
    """The text with ``standard input`` in place of the temporary file's name."""
    for folder, name in getattr(arguments, "streams", {}).items():
        text = text.replace(folder, name)
    return text


def _cut(text: str) -> str:
    """The first lines of a text, and the count of the remaining ones."""
    lines = text.split("\n")
    if is_wide_open() or len(lines) <= ROWS + 10:
        return text
    more = f"and {len(lines) - ROWS:,} more lines: --all shows them"
    return "\n".join([*lines[:ROWS], more])


def _problem(error: ModelkinError) -> dict[str, Any]:
    """A problem document for an error (RFC 9457), in the service's form."""
    problem: dict[str, Any] = {"title": type(error).__name__, "code": error.code}
    status = getattr(error, "status", None)
    if status is not None:
        problem |= {
            "status": status,
            "code": getattr(error, "problem_code", error.code),
            "request_id": getattr(error, "request_id", None),
            "errors": list(getattr(error, "errors", ())),
        }
    return {**problem, "detail": getattr(error, "detail", str(error)), "text": str(error)}


def _fail(
    arguments: argparse.Namespace, title: str, code: str, detail: str, text: str = "", **more: Any
) -> None:
    """Report an error: in one line, or with ``--json`` as one object."""
    if arguments.json:
        said = _without_folder(arguments, detail)
        problem = {"title": title, "code": code, "detail": said, **more}
        sys.stderr.write(json.dumps(problem) + "\n")
    else:
        _say(_without_folder(arguments, text or detail))


def _serve(words: Sequence[str]) -> int:
    from modelkin.cli.commands.serve import become

    try:
        return become(words)
    except ModelkinError as error:
        _say(str(error))
        return _FAILED


def _say(message: str) -> None:
    sys.stderr.write(f"modelkin: {one_line(message)}\n")
