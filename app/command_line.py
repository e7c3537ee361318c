"""The command line of the service: its flags, which are the settings, and its help."""

from __future__ import annotations

import argparse
import re
from typing import Final, NoReturn

from modelkin._option_parser import OptionParser
from modelkin._terminal_text import one_line
from modelkin._version import __version__

__all__ = ["COMMANDS", "parser"]

COMMANDS: Final = {
    "keys": "create, list and revoke API keys",
    "tenants": "show what tenants have, and set their quotas",
    "backup": "copy the database and the supports while the service runs",
    "restore": "put a copy back",
    "verify": "compare what is stored with its digests, and repair it",
    "check": "inspect settings, folders, stores and secret key",
    "migrate": "bring the database to this version, and exit",
    "rebuild-buckets": "compute the LSH buckets of spaces again",
    "renew-secrets": "encrypt stored secrets with the first encryption key",
}
"""The commands of the service's program besides serving, with a description each."""

_OF_THE_PACKAGE: Final = {"workers": "carry out jobs, on this machine or others"}
"""The further commands of ``modelkin serve``; in a clone, use ``python -m workers``."""
_NO_DEFAULT: Final = re.compile(r"\s*\(default:\s+null\)")


_UNKNOWN: Final = "unrecognized arguments: "
_USAGE_ERROR: Final = 2


class _Parser(OptionParser):
    """A parser whose help says no default where there is none, and whose errors are one line."""

    commands: frozenset[str] = frozenset()

    def format_help(self) -> str:
        return _NO_DEFAULT.sub("", super().format_help()).replace("SecretStr", "KEY")

    def error(self, message: str) -> NoReturn:
        if message.startswith(_UNKNOWN):
            message = self._unknown(message.removeprefix(_UNKNOWN).split()[0])
        self.exit(_USAGE_ERROR, f"{self.prog}: {one_line(message)} (see {self.prog} --help)\n")

    def _unknown(self, word: str) -> str:
        """Say why a word is unknown, and name a near one."""
        from difflib import get_close_matches  # after a mistake alone

        name = word.partition("=")[0]
        is_flag = name.startswith("-")
        known = self.option_names if is_flag else self.commands
        near = get_close_matches(name, sorted(known), 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        return f"unknown {'flag' if is_flag else 'command'} {name!r}{hint}"


def parser(program: str, *, serves: bool) -> OptionParser:
    """The parser that the settings add their flags to.

    Args:
        program: the name by which the program was called.
        serves: whether the program is the service, which has commands, too.
    """
    commands = COMMANDS | (_OF_THE_PACKAGE if program == "modelkin serve" else {})
    width = max(map(len, commands))
    listed = "".join(f"\n  {name:{width}}  {text}" for name, text in commands.items())
    made = _Parser(
        prog=program,
        usage=f"{program} [FLAGS]" + (f"\n       {program} COMMAND --help" if serves else ""),
        description="The modelkin service: which models are kin. Each flag is a variable, too: "
        "--port is MODELKIN_PORT.",
        epilog=f"commands:{listed}" if serves else None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    made.commands = frozenset(commands if serves else ())
    made.add_argument("--version", action="version", version=f"modelkin {__version__}")
    return made
