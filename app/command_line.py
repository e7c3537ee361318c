"""The command line of the service: its flags, which are the settings, and its help."""

from __future__ import annotations

import argparse
import re
from typing import Final

__all__ = ["COMMANDS", "parser"]

COMMANDS: Final = {
    "keys": "create, list and revoke API keys",
    "tenants": "show what tenants have, and set their quotas",
    "backup": "copy the database and the supports while the service runs",
    "restore": "put a copy back",
    "verify": "compare what is stored with its digests, and repair it",
    "check": "inspect settings, data folder and secret key",
    "rebuild-buckets": "compute the LSH buckets of spaces again",
    "stop-lists": "build the stop-lists of spaces again",
    "split-kinds": "part weights and deltas that are in one space",
    "renew-secrets": "encrypt stored secrets with the first encryption key",
}
"""What the service's program does besides serving, in a few words each."""

_OF_THE_PACKAGE: Final = {"workers": "carry out jobs, on this machine or others"}
"""What ``modelkin serve`` has besides; in a clone it is ``python -m workers``."""
_NO_DEFAULT: Final = re.compile(r"\s*\(default:\s+null\)")


class _Parser(argparse.ArgumentParser):
    """A parser whose help says no default where there is none."""

    def format_help(self) -> str:
        return _NO_DEFAULT.sub("", super().format_help())


def parser(program: str, *, serves: bool) -> argparse.ArgumentParser:
    """The parser that the settings add their flags to.

    Args:
        program: by which it was called.
        serves: whether it is that of the service, which has commands, too.
    """
    commands = COMMANDS | (_OF_THE_PACKAGE if program == "modelkin serve" else {})
    width = max(map(len, commands))
    listed = "".join(f"\n  {name:{width}}  {text}" for name, text in commands.items())
    return _Parser(
        prog=program,
        usage=f"{program} [FLAGS]" + (f"\n       {program} COMMAND --help" if serves else ""),
        description="The modelkin service: which models are kin. Each flag is a variable, too: "
        "--port is MODELKIN_PORT.",
        epilog=f"commands:{listed}" if serves else None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
