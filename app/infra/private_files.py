"""Files and folders for their owner alone: they hold the data of every tenant."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

__all__ = ["keep_private", "prepare_database_file", "prepare_folder"]

_FILE_MODE, _FOLDER_MODE = 0o600, 0o700


def keep_private() -> None:
    """Give all files and folders that this process creates from now on to its user alone."""
    os.umask(0o777 & ~_FOLDER_MODE)


def prepare_database_file(file: Path) -> None:
    """Create the file of a SQLite database if there is none, and withdraw the rights of others.

    SQLite gives the logs beside it the same rights. Nothing is raised: an unusable file shows when
    it is opened.

    An existing file is not opened: closing it would end the locks that SQLite has on it in this
    process (POSIX), and the next program to close the database would delete its log.
    """
    with contextlib.suppress(OSError):
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        os.close(os.open(file, flags, _FILE_MODE))
    for kept in (file, *(file.with_name(f"{file.name}-{log}") for log in ("wal", "shm"))):
        _withdraw(kept, _FILE_MODE)


def prepare_folder(folder: Path) -> None:
    """Create a folder for this service alone, or withdraw the rights of others on it.

    Raises:
        OSError: the folder cannot be created.
    """
    folder.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
    _withdraw(folder, _FOLDER_MODE)


def _withdraw(path: Path, mode: int) -> None:
    with contextlib.suppress(OSError):  # not there, or another user's
        path.chmod(mode)
