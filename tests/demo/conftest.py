"""The demo within this process, which has imported torch, on services that are forked; its command,
which starts one by itself, is run once beside it.
"""

from __future__ import annotations

import contextlib
import io
import subprocess
from typing import Any
from unittest import mock

from demo.__main__ import parse, run
from tests.support.servers import forked_subprocess


def demo(*arguments: str) -> subprocess.CompletedProcess[str]:
    """What ``python -m demo`` prints and returns, run to its end."""
    out, error = io.StringIO(), io.StringIO()
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(error),
        mock.patch("demo.service.subprocess", forked_subprocess),
    ):
        try:
            code: Any = run(parse(list(arguments)))
        except SystemExit as stopped:  # argparse's way
            code = stopped.code
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), error.getvalue())
