"""``python -m app``: carry out an operator's command, or serve until a signal stops it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from app.infra.fd_limits import raise_limit
from app.infra.garbage import without_collection
from app.infra.misfits import REMEDY, misfit
from app.infra.private_files import keep_private
from app.operations.cli import find_command

if TYPE_CHECKING:
    from app.container import Container


def main(register: Callable[[Container], None] | None = None) -> int:
    """The exit code of a command, or of the service: see :func:`app.server.command.run`.

    Args:
        register: registers the jobs that the service carries out; by default its own.
    """
    with without_collection():
        command = find_command("".join(sys.argv[1:2]))
        if command is None:
            from app.server import command as server  # the commands of operators need none
    if command is None:
        return server.run(sys.argv[1:], register)
    keep_private()
    raise_limit()
    return command(sys.argv[2:])


def _begin() -> int:
    """The same; a package that does not fit is told in one line."""
    try:
        return main()
    except ImportError as error:
        if (said := misfit(error)) is None:
            raise
        sys.stderr.write(f"modelkin: {said}: {REMEDY}\n")
        return 1


if __name__ == "__main__":
    sys.exit(_begin())
