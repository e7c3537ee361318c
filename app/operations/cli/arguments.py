"""The parsers of the commands: ``--json`` everywhere, and wrong command lines in one line."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from app.infra.programs import service_command
from modelkin._terminal_text import one_line

if TYPE_CHECKING:
    from app.operations.cli.output import Output

__all__ = ["Command", "CommandParser"]

Command = Callable[[argparse.Namespace, "Output"], int]
"""Carries out what the options ask for; returns the exit code."""

_USAGE_ERROR = 2


class CommandParser(argparse.ArgumentParser):
    """The parser of a command, or of one of its actions."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **{"allow_abbrev": False, **settings})
        self._words: list[str] = []

    @classmethod
    def of(cls, name: str, description: str) -> CommandParser:
        """The parser of the service's command of this name."""
        return cls(prog=service_command(name), description=description)

    def runs(self, command: Command) -> None:
        """Make this command run after parsing, and take ``--json``."""
        self.add_argument("--json", action="store_true", help="answer one JSON object")
        self.set_defaults(run=command)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse as argparse does, and keep the words for errors."""
        self._words = list(sys.argv[1:] if args is None else args)
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """Report a wrong command line, as an object where ``--json`` is given, and leave."""
        more = f"see {self.prog} --help"
        if "--json" in self._words:
            problem = {"title": "Wrong command line", "code": "usage", "detail": message}
            sys.stderr.write(json.dumps({**problem, "help": more}) + "\n")
        else:
            sys.stderr.write(f"{self.prog}: {one_line(message)} ({more})\n")
        raise SystemExit(_USAGE_ERROR)
