"""Files and folders for their owner alone: they hold the data of every tenant."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

__all__ = ["keep_private", "make_private_folder", "prepare_private_file"]

_FILE_MODE, _FOLDER_MODE = 0o600, 0o700


def keep_private() -> None:
    """Give what this process creates from now on to its user alone."""
    os.umask(0o777 & ~_FOLDER_MODE)


def prepare_private_file(file: Path) -> None:
    """Create a file where there is none, and withdraw the rights that others have on it.

    Whether it can be used shows its first use, so nothing is raised here.
    """
    with contextlib.suppress(OSError):
        os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _FILE_MODE))
        file.chmod(_FILE_MODE)


def make_private_folder(folder: Path) -> None:
    """Create a folder that belongs to this service, or withdraw the rights that others have on it.

    Raises:
        OSError: it cannot be created.
    """
    folder.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
    with contextlib.suppress(OSError):  # of another user: as its owner wants it
        folder.chmod(_FOLDER_MODE)
