"""The folder of the service on this machine: the clone's, or what the extra ``server`` installs.

The packages of the service are called ``app`` and ``workers``. So that they never shadow a module
of yours, they are in no folder of ``sys.path``: only a process of their own gets this one.
"""

from __future__ import annotations

import os
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from modelkin.errors import MissingExtra

__all__ = ["operator_command", "server_command", "server_environment", "server_folder"]

CLONE = Path(__file__).resolve().parents[2]
"""The folder of the service if the SDK is installed from a clone, to be edited."""
_DISTRIBUTION = "modelkin-service"
_PROGRAM, _VARIABLE = "modelkin serve", "MODELKIN_PROGRAM"


def server_folder() -> Path:
    """The folder that holds ``app``, ``workers`` and ``migrations``.

    Raises:
        MissingExtra: the service is not installed.
    """
    if _holds_service(CLONE):
        return CLONE
    try:
        installed = Path(str(distribution(_DISTRIBUTION).locate_file("modelkin_service")))
    except PackageNotFoundError:
        raise MissingExtra(_DISTRIBUTION, "server") from None
    if not _holds_service(installed):
        raise MissingExtra(_DISTRIBUTION, "server")
    return installed


def operator_command(*words: str) -> str:
    """The text by which an operator types a command of the service, in a clone as well."""
    return " ".join([_PROGRAM, *words])


def server_command(module: str, *arguments: str) -> list[str]:
    """The command of a module of the service, which looks for modules in no current folder."""
    return [sys.executable, "-P", "-m", module, *arguments]


def server_environment(folder: Path) -> dict[str, str]:
    """This process's environment, in which Python finds the service first.

    It tells the service by which command its user called it, for its messages and its help.
    """
    paths = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), _VARIABLE: _PROGRAM}


def _holds_service(folder: Path) -> bool:
    return all((folder / name).is_dir() for name in ("app", "workers", "migrations"))
