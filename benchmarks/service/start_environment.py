"""The environment of the processes whose start is measured."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["start_environment"]


def start_environment(bytecode: Path | None) -> dict[str, str]:
    """This process's environment, with the bytecode of all modules kept in a folder.

    Python keeps it by default, beside the modules, and the image has it. Where
    PYTHONDONTWRITEBYTECODE is set, as in some shells and runners, each start would compile some
    four hundred modules again, and that would be measured.

    Args:
        bytecode: the folder; None keeps it beside the modules, where it is already.
    """
    variables = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return variables if bytecode is None else variables | {"PYTHONPYCACHEPREFIX": str(bytecode)}
