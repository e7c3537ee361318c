"""``Downloads``: folders for downloads, one for each job, deleted when the job ends.

A folder belongs to the process that holds the lock of a file in it. The kernel releases the lock
when that process dies, and the next sweep deletes folders without a lock. The file also holds the
number of bytes of the disk that are reserved for the folder.
"""

from __future__ import annotations

import logging
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from filelock import FileLock

from app.infra.errors import StorageFull, Unavailable

__all__ = ["Downloads", "DownloadDir"]

_LOCK: Final = ".lock"
_POLL_INTERVAL_S: Final = 0.01
_KEPT_S: Final = 2 * 24 * 3600.0
"""Seconds for which a sync that was killed may go on."""
_MIN_FREE_BYTES: Final = 256 << 20
"""Bytes of the disk that are left to other programs."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DownloadDir:
    """A folder, and the part of the disk that is promised to it."""

    path: Path

    def folder(self, name: str) -> Path:
        """Make a new folder in this one.

        Raises:
            Unavailable: the folder cannot be made.
        """
        folder = self.path / name
        try:
            folder.mkdir()
        except OSError as error:
            raise _unwritable(folder, error) from error
        return folder

    def beside(self, name: str) -> Path:
        """A file that outlasts this folder, until a sweep finds it old."""
        return self.path.parent / name

    def reserve(self, size: int) -> None:
        """Reserve ``size`` more bytes of the disk, beside those promised to others, or refuse.

        Raises:
            StorageFull: the disk has too little room.
            Unavailable: the folder cannot be written.
        """
        root = self.path.parent
        try:
            with _lock(root):
                left = shutil.disk_usage(root).free - _MIN_FREE_BYTES - self._owed_to_others()
                if size > left:
                    raise StorageFull(
                        f"{size} bytes are to be downloaded, and the disk has "
                        f"{max(0, left)} left for them: {_MIN_FREE_BYTES} are spared, and other "
                        f"running downloads have reserved theirs"
                    )
                (self.path / _LOCK).write_text(str(_used(self.path) + size))
        except OSError as error:
            raise _unwritable(root, error) from error

    def watch(self) -> None:
        """Refuse to go on if the disk is nearly full, whatever was declared.

        Raises:
            StorageFull: the disk is nearly full.
        """
        free = shutil.disk_usage(self.path).free
        if free < _MIN_FREE_BYTES:
            raise StorageFull(
                f"the disk for downloads has {free} bytes left, and {_MIN_FREE_BYTES} are spared",
                reason=str(self.path.parent),
            )

    def _owed_to_others(self) -> int:
        """Bytes that were promised to others who live, and have not come."""
        others = [
            folder
            for folder in self.path.parent.iterdir()
            if folder != self.path and folder.is_dir() and not _is_free(folder)
        ]
        return sum(max(0, _promised_bytes(folder) - _used(folder)) for folder in others)


class Downloads:
    """Temporary folders below a folder that only this database uses.

    Args:
        root: the folder, made with the first temporary one.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    @contextmanager
    def directory(self) -> Iterator[DownloadDir]:
        """Make an empty folder, for as long as the block runs.

        Raises:
            Unavailable: the folder cannot be made.
        """
        folder = self._root / secrets.token_hex(8)
        try:
            self._root.mkdir(parents=True, exist_ok=True)
            with _lock(self._root):  # no sweep comes between the two
                folder.mkdir()
                lock = _lock(folder)
                lock.acquire()
        except OSError as error:
            raise _unwritable(self._root, error) from error
        try:
            yield DownloadDir(folder)
        finally:
            # Under the root's lock: a probe would create its lock file in the folder meanwhile.
            with suppress(OSError), _lock(self._root):
                shutil.rmtree(folder, ignore_errors=True)
            lock.release()

    def sweep(self) -> int:
        """Remove the folders of processes that died, and old files; return how many folders."""
        swept = 0
        if not self._root.is_dir():
            return swept
        with suppress(OSError), _lock(self._root):
            for folder in self._root.iterdir():
                if folder.is_dir() and _is_free(folder):
                    shutil.rmtree(folder, ignore_errors=True)
                    swept += 1
                elif folder.is_file() and folder.name != _LOCK and _is_old(folder):
                    folder.unlink()
        if swept:
            log.info("removed %d unfinished downloads", swept)
        return swept


def _is_old(path: Path) -> bool:
    """Whether no sync has kept anything in a file for long."""
    return time.time() - path.stat().st_mtime > _KEPT_S


def _promised_bytes(folder: Path) -> int:
    """The bytes promised to a folder; 0 if the folder has just gone, or asked for none yet."""
    try:
        return int((folder / _LOCK).read_text() or 0)
    except FileNotFoundError:
        return 0


def _used(folder: Path) -> int:
    """The bytes of the disk that a folder takes, without the holes of files."""
    used = 0
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):  # others end, and take theirs with them
            used += path.stat().st_blocks * 512
    return used


def _is_free(folder: Path) -> bool:
    """Whether no process holds a folder; the caller has the root's lock."""
    try:
        with _lock(folder).acquire(blocking=False):
            return True
    except FileNotFoundError:
        return True
    except OSError:  # a timeout among them
        return False


def _lock(folder: Path) -> FileLock:
    """The lock of a folder, which the kernel releases if its process dies.

    A file system without such locks is refused: its substitute would outlive the process.
    """
    return FileLock(
        folder / _LOCK, thread_local=False, poll_interval=_POLL_INTERVAL_S, fallback_to_soft=False
    )


def _unwritable(folder: Path, error: OSError) -> Unavailable:
    return Unavailable("nothing can be downloaded now", reason=f"{folder}: {error.strerror}")
