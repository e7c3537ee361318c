"""Stand in for ``subprocess`` in a module that starts ``python -m MODULE``: its processes are
forked, as those of the tests are, from one that has imported the services.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from subprocess import DEVNULL, STDOUT, TimeoutExpired
from typing import IO, Any

from tests.support.servers.forkserver import ModuleProcess

__all__ = ["DEVNULL", "STDOUT", "Popen", "TimeoutExpired"]


class Popen(ModuleProcess):
    """A module that runs, with its output and its errors in one file.

    Args:
        command: ``[sys.executable, "-m", MODULE, *ARGUMENTS]``.
        cwd: it is run from there.
        env: its whole environment; by default this process's.
        stdout: the file for its output, unless only one for its errors is given.
        stderr: the file for its errors.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str] | None = None,
        stdout: IO[bytes] | None = None,
        stderr: IO[bytes] | int | None = None,
        **_: Any,
    ) -> None:
        interpreter, option, module, *arguments = command
        assert (sys.executable, "-m") == (interpreter, option)
        file = stderr if stdout is None else stdout
        assert file is not None
        assert not isinstance(file, int)
        log, variables = Path(file.name), os.environ if env is None else env
        super().__init__(module, *arguments, folder=cwd, env=variables, stdout=log, stderr=log)
        self.start()

    def wait(self, timeout: float | None = None) -> int:
        """The exit code; ``TimeoutExpired`` where it is still running."""
        try:
            return super().wait(timeout)
        except TimeoutError as error:
            raise TimeoutExpired(self._module, timeout or 0) from error

    def poll(self) -> int | None:
        """The exit code, if it has ended."""
        return self.exitcode
