"""Folders for what is downloaded, one a job, which go when the job ends, however it ends.

A folder belongs to whoever holds the lock of a file in it; the kernel lets go of that when a
process dies, and whoever sweeps next removes what nobody holds. Nothing here asks a hub.
"""

from __future__ import annotations

import fcntl
import logging
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from modelkin.errors import StorageFull, Unavailable

__all__ = ["Downloads"]

_LOCK: Final = ".lock"
_SPARED: Final = 256 << 20
"""Bytes of the disk that are left to everybody else."""

log = logging.getLogger(__name__)


class Downloads:
    """Temporary folders below one that is this database's alone.

    Args:
        root: made with the first of them.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    @contextmanager
    def folder(self) -> Iterator[Path]:
        """An empty folder, for as long as the block runs.

        Raises:
            Unavailable: it cannot be made.
        """
        folder = self._root / secrets.token_hex(8)
        try:
            self._root.mkdir(parents=True, exist_ok=True)
            with _locked(self._root / _LOCK):  # nobody sweeps between the two
                folder.mkdir()
                held = _open_lock(folder / _LOCK)
                fcntl.flock(held, fcntl.LOCK_EX)
        except OSError as error:
            raise Unavailable(
                f"nothing can be downloaded to {self._root}: {error.strerror}"
            ) from error
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(held)

    def require_room(self, size: int) -> None:
        """Refuse to begin what the disk will not hold.

        Raises:
            StorageFull: it will not.
        """
        free = shutil.disk_usage(self._root).free
        if size + _SPARED > free:
            raise StorageFull(
                f"{size} bytes are to be downloaded, and the disk of {self._root} has {free} left, "
                f"of which {_SPARED} are spared"
            )

    def sweep(self) -> int:
        """Remove what processes that died have left; how many folders."""
        swept = 0
        if not self._root.is_dir():
            return swept
        with suppress(OSError), _locked(self._root / _LOCK):
            for folder in self._root.iterdir():
                if folder.is_dir() and _is_free(folder / _LOCK):
                    shutil.rmtree(folder, ignore_errors=True)
                    swept += 1
        if swept:
            log.info("removed %d unfinished downloads", swept)
        return swept


def _is_free(lock: Path) -> bool:
    """Whether nobody holds it; one that is not there was never held, or is all that is left."""
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    else:
        return True
    finally:
        os.close(descriptor)


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    descriptor = _open_lock(file)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _open_lock(file: Path) -> int:
    return os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
