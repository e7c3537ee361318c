"""The commands of this service, as its operator types them.

A command goes on with ``modelkin serve`` where that began. In a clone of the repository
``python -m app`` and ``python -m workers`` do the same. Installed as a package they are
``modelkin serve`` alone, since its modules are in no folder of ``sys.path``.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

__all__ = ["service_command", "workers_command"]

_VARIABLE: Final = "MODELKIN_PROGRAM"
"""Set by ``modelkin`` for the processes of the service that it begins; theirs inherit it."""
_INSTALLED: Final = "modelkin_service"
"""The folder around ``app`` in the wheel."""


def service_command(*words: str) -> str:
    """The command of the service, with these words after it."""
    return " ".join(["modelkin serve" if _is_of_the_package() else "python -m app", *words])


def workers_command() -> str:
    """The command of workers that run beside the service."""
    return "modelkin serve workers" if _is_of_the_package() else "python -m workers"


def _is_of_the_package() -> bool:
    return _VARIABLE in os.environ or Path(__file__).parents[2].name == _INSTALLED
