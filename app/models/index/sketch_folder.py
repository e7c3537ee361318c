"""The folder of sketches on this machine: one file a space, in the format of ``sketch_file``."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from cachetools import LRUCache

from app.models.index.sketch_file import SketchFile

__all__ = ["SketchFolder"]

_SUFFIX = ".sketches"
_MAX_OPEN_FILES = 64
_WRITE_RETRY_DELAY_S = 60.0
"""Seconds after a failed write during which no other write is tried."""

log = logging.getLogger(__name__)


class SketchFolder:
    """The sketches of all spaces of one database on this machine.

    Args:
        folder: a folder that is reserved for these files; the first write creates it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._files: LRUCache[int, SketchFile] = LRUCache(_MAX_OPEN_FILES)
        self._failed_at: float | None = None

    def of(self, space_id: int, num_parameters: int) -> SketchFile:
        """The sketches of a space, whose M never changes."""
        with self._lock:
            file, idle = self._files.get(space_id), None
            if file is None:
                if len(self._files) == _MAX_OPEN_FILES:
                    _, idle = self._files.popitem()
                file = SketchFile(self._path(space_id), num_parameters, self._attempt)
                self._files[space_id] = file
        if idle is not None:
            idle.close()
        return file

    def forget(self, space_id: int) -> None:
        """Delete the sketches of a space that was deleted."""
        with self._lock:
            file = self._files.pop(space_id, None)
        if file is not None:
            file.close()
        _delete(self._path(space_id))

    def sweep(self, space_ids: Iterable[int]) -> None:
        """Delete the files of all other spaces, which another machine has deleted."""
        wanted = {self._path(space_id).name for space_id in space_ids}
        for path in self._folder.glob(f"*{_SUFFIX}"):
            if path.name not in wanted and path.stem.isdecimal():
                self.forget(int(path.stem))

    def space_ids(self) -> list[int]:
        """The spaces that have a file."""
        stems = (path.stem for path in self._folder.glob(f"*{_SUFFIX}"))
        return sorted(int(stem) for stem in stems if stem.isdecimal())

    def apart(self, space_id: int, num_parameters: int) -> SketchFile:
        """The sketches of a space, beside the files that stay open."""
        return SketchFile(self._path(space_id), num_parameters)

    def close(self) -> None:
        """Close all files."""
        with self._lock:
            files = list(self._files.values())
            self._files.clear()
        for file in files:
            file.close()

    def _path(self, space_id: int) -> Path:
        return self._folder / f"{space_id}{_SUFFIX}"

    def _attempt(self, write: Callable[[], None]) -> None:
        """Write, unless a write failed a moment ago; log the first failure and the recovery."""
        failed_at = self._failed_at
        if failed_at is not None and time.monotonic() < failed_at + _WRITE_RETRY_DELAY_S:
            return
        try:
            write()
        except OSError as error:
            self._failed_at = time.monotonic()
            if failed_at is None:
                log.warning(
                    "sketches cannot be kept in %s (%s): queries go on without",
                    self._folder,
                    error.strerror,
                )
            return
        if failed_at is not None:
            self._failed_at = None
            log.info("sketches are kept in %s again", self._folder)


def _delete(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()
