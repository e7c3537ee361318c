"""The demo within this process, which has imported torch; its command is run once beside it."""

from __future__ import annotations

import contextlib
import io
import subprocess
from typing import Any

from demo.__main__ import parse, run


def demo(*arguments: str) -> subprocess.CompletedProcess[str]:
    """What ``python -m demo`` prints and returns, run to its end."""
    out, error = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
        try:
            code: Any = run(parse(list(arguments)))
        except SystemExit as stopped:  # argparse's way
            code = stopped.code
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), error.getvalue())
