"""Files that get their names once they are whole, and are written through no link.

What is written may come from a service, and the folder may be another user's: a link, a pipe or a
device in the place of the file, or of the file beside it, must not take the bytes.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final, Self

from modelkin.errors import InvalidParameter

__all__ = ["WholeFile", "require_ordinary", "write_whole"]

_NEW: Final = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)


class WholeFile:
    """A new file, beside the one whose place it takes in the end.

    Its name is always the same: what a process leaves that dies, the next one replaces. In a
    ``with`` block, which discards it unless :meth:`finish` was called.

    Args:
        path: the file's path; an old file stays until the end.
        mode: the permissions, before the mask of the process.

    Raises:
        InvalidParameter: ``path`` is a link, or no ordinary file.
        OSError: the file cannot be written.
    """

    def __init__(self, path: str | os.PathLike[str], mode: int = 0o666) -> None:
        self.target = Path(path)
        require_ordinary(self.target)
        self.path = self.target.with_name(f".{self.target.name}.part")
        self.path.unlink(missing_ok=True)  # a link itself, not what it leads to
        self.file: BinaryIO = os.fdopen(os.open(self.path, _NEW, mode), "w+b")

    def finish(self) -> None:
        """Write all to the disk, and give the file its name.

        Raises:
            OSError: another process has taken its place.
        """
        self.file.flush()
        os.fsync(self.file.fileno())
        mine, found = os.fstat(self.file.fileno()), os.lstat(self.path)
        if (mine.st_dev, mine.st_ino) != (found.st_dev, found.st_ino):
            raise FileExistsError(17, "another process writes this file", str(self.target))
        self.file.close()
        os.replace(self.path, self.target)

    def discard(self) -> None:
        """Leave no unfinished file behind."""
        if not self.file.closed:
            self.file.close()
            self.path.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.discard()


def write_whole(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file, in place of an old one.

    Raises:
        InvalidParameter: ``path`` is a link, or no ordinary file.
        OSError: the file cannot be written.
    """
    with WholeFile(path) as whole:
        whole.file.write(data)
        whole.finish()


def require_ordinary(path: str | os.PathLike[str]) -> None:
    """Refuse to take the place of a link, a device, a pipe or a folder.

    Raises:
        InvalidParameter: there is one.
    """
    try:
        found = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if stat.S_ISLNK(found):
        what = "is a link, and links are not followed"
    elif not stat.S_ISREG(found):
        what = "is not an ordinary file"
    else:
        return
    raise InvalidParameter(f"{os.fspath(path)} {what}: give another name", field="path")
