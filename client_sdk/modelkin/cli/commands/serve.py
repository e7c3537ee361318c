"""The command ``serve``: run the service in place of this process."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence

from modelkin._server_folder import server_command, server_environment, server_folder
from modelkin.cli.output import Answer

__all__ = ["become", "serve", "serve_options"]


def serve_options(parser: argparse.ArgumentParser) -> None:
    """Add no options: the service reads its options itself."""
    parser.add_argument(
        "flags", nargs="*", metavar="FLAG|COMMAND", help="flags or a command of the service"
    )


def serve(arguments: argparse.Namespace) -> Answer:
    """``modelkin serve``: run the service; its exit code is the command's."""
    return Answer("", {}, code=become(arguments.flags))


def become(arguments: Sequence[str]) -> int:
    """Become ``python -m app`` with these arguments; ``serve workers`` becomes ``-m workers``.

    So signals reach the service itself, and its exit code is the command's.

    Raises:
        MissingExtra: the service is not installed.
    """
    folder = server_folder()
    module, rest = "app", list(arguments)
    if rest[:1] == ["workers"]:
        module, rest = "workers", rest[1:]
    command = server_command(module, *rest)
    environment = server_environment(folder)
    if os.name == "posix":
        sys.stdout.flush()
        os.execve(sys.executable, command, environment)  # noqa: S606
    return subprocess.run(command, env=environment, check=False).returncode  # noqa: S603
