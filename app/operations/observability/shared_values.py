"""The values of metrics in files that all processes of a service read.

A file belongs to one place of the supervisor, and not to a process: the next process at that place
goes on with the counts of the last one. So sums never fall, and there are as many files after a
thousand restarts as after one.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["SharedValues"]

_VARIABLE: Final = "PROMETHEUS_MULTIPROC_DIR"
"""The variable from which prometheus_client takes the folder when it opens a file."""


@dataclass(frozen=True, slots=True)
class SharedValues:
    """The files of one process.

    Attributes:
        folder: the folder with the files of all processes.
        name: the name of this process's files; no two processes have it at the same time.
    """

    folder: Path
    name: str

    def use(self) -> None:
        """Keep the values of all metrics that this process makes from now on in these files."""
        from prometheus_client import values

        os.environ[_VARIABLE] = str(self.folder)
        values.ValueClass = values.MultiProcessValue(lambda: self.name)  # type: ignore[no-untyped-call]

    def forget_gauges(self) -> None:
        """Leave the present state of a process out of the sums: it has ended."""
        from prometheus_client.multiprocess import mark_process_dead

        mark_process_dead(self.name, str(self.folder))  # type: ignore[no-untyped-call]
