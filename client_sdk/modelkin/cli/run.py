"""The entry point: from a command line to an exit code."""

from __future__ import annotations

import io
import json
import os
import sys
import warnings
from collections.abc import Sequence

from modelkin.cli.arguments import parse
from modelkin.cli.output import one_line
from modelkin.core.selection.warnings import SmallSupportWarning
from modelkin.errors import ModelkinError

__all__ = ["main"]

_INTERRUPTED = 130
"""128 and SIGINT, as in shells."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: the command line without the program's name; by default that of ``sys.argv``.

    Returns:
        0; 1 for an error, reported in one line; 130 for an interruption. Usage errors and
        ``--help`` leave by SystemExit, with 2 and 0, as argparse has it.
    """
    arguments = parse(argv)
    if isinstance(sys.stdout, io.TextIOWrapper):  # names hold letters that its encoding may lack
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", SmallSupportWarning)
            answer = arguments.command(arguments)
        notes = (*answer.notes, *(str(w.message) for w in caught))
        for note in notes:
            _say(f"note: {note}")
        text = json.dumps({**answer.fields, "notes": notes}) if arguments.json else answer.text
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has closed the pipe, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        _say("interrupted")
        return _INTERRUPTED
    except MemoryError:
        _say("there is not enough memory for this")
        return 1
    except OSError as error:
        _say(f"{error.filename}: {error.strerror}" if error.filename else str(error))
        return 1
    except ModelkinError as error:
        _say(str(error))
        return 1
    return 0


def _say(message: str) -> None:
    sys.stderr.write(f"modelkin: {one_line(message)}\n")
