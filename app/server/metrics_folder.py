"""The folder of the metrics of several processes: in ``/tmp``, for as long as they serve.

A supervisor that is killed by SIGKILL leaves it behind, and the next start deletes it. A lock says
whether a folder is in use: the kernel releases it with its process. (An id of a process would not
do: in a container the next one has the same.) The cleaner of systemd, which deletes what is old in
``/tmp``, leaves locked folders alone, too.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

__all__ = ["metrics_folder"]

_PREFIX: Final = "modelkin-metrics-"
_MAKING_S: Final = 60.0
"""Seconds after which a folder without a lock is not one that another supervisor is just making."""


@contextmanager
def metrics_folder() -> Iterator[Path]:
    """A folder of this process, deleted behind the block; those of dead processes are deleted."""
    _delete_those_of_the_dead()
    with tempfile.TemporaryDirectory(prefix=_PREFIX) as folder, _lock(Path(folder)):
        yield Path(folder)


def _delete_those_of_the_dead() -> None:
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError):  # it is in use, or gone by now
            found = folder.lstat()
            if found.st_uid == os.getuid() and time.time() - found.st_mtime > _MAKING_S:
                with _lock(folder):
                    shutil.rmtree(folder)


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder; :class:`OSError` where another process holds it."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(opened)
