"""Files behind a small cache of pages, which counts the bytes that it gets from the disk."""

from __future__ import annotations

from collections import OrderedDict
from io import FileIO
from pathlib import Path
from threading import Lock
from typing import Any

__all__ = ["CountedFiles"]

_PAGE = 1 << 12


class CountedFiles:
    """Opens files for a checkpoint, and counts what has to come from the disk.

    Args:
        kept: how many bytes the cache has room for, of those that were read last.
    """

    def __init__(self, kept: int) -> None:
        self._room = -(-kept // _PAGE)
        self._pages: OrderedDict[tuple[Path, int], None] = OrderedDict()
        self._lock = Lock()
        self.came = 0
        """Bytes that came from the disk, in whole pages."""

    def open(self, path: Path) -> FileIO:
        """Open a file, as the ``open_file`` of a checkpoint."""
        files = self

        class Counted(FileIO):
            def readinto(self, buffer: Any, /) -> int:
                begin = self.tell()
                got = super().readinto(buffer)
                files.note(path, begin, begin + got)
                return got

        return Counted(path)

    @staticmethod
    def most(*paths: Path) -> int:
        """The bytes that come where each page of these files does once."""
        return sum(-(-path.stat().st_size // _PAGE) * _PAGE for path in paths)

    def note(self, path: Path, begin: int, end: int) -> None:
        """Count a stretch that was read."""
        with self._lock:
            for page in range(begin // _PAGE, -(-end // _PAGE)):
                if (path, page) not in self._pages:
                    self.came += _PAGE
                self._pages[path, page] = None
                self._pages.move_to_end((path, page))
                if len(self._pages) > self._room:
                    self._pages.popitem(last=False)
