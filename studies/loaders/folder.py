"""The folder that ``--data-dir`` names: its files are found, and read up to a limit."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, Final

__all__ = ["MAX_BYTES", "DataError", "found", "read"]

MAX_BYTES: Final = 2**28
"""The most bytes of one file, unpacked: the largest of these data sets has 154 MB."""

_PIECE: Final = 2**20
_GZIP: Final = b"\x1f\x8b"


class DataError(ValueError):
    """Files that are missing or are not what they should be; says which, and what to do."""


def found(folder: Path, names: Sequence[str], subfolders: Sequence[str] = ()) -> list[Path]:
    """The paths of files, all in the folder itself or all in one of its subfolders.

    Args:
        folder: that ``--data-dir`` names.
        names: of the files; each may have ``.gz`` after it.
        subfolders: where archives put them.

    Raises:
        DataError: no such folder, or files are missing; names the first of them.
    """
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder: give the one that has {names[0]}")
    missing = names[0]
    for place in (folder, *(folder / each for each in subfolders)):
        paths = [_packed_or_not(place / name) for name in names]
        if all(path.is_file() for path in paths):
            return paths
        if paths[0].is_file():
            missing = next(n for n, p in zip(names, paths, strict=True) if not p.is_file())
    raise DataError(
        f"{folder} has no file {missing}: unpack the data set there, or name its folder with "
        "--data-dir"
    )


def _packed_or_not(path: Path) -> Path:
    return path if path.exists() else path.with_name(f"{path.name}.gz")


def read(file: BinaryIO, name: str, limit: int = MAX_BYTES) -> bytes:
    """All bytes of a file, unpacked if it is gzip's.

    Memory grows with what is read, whatever a header says, and not beyond the limit.

    Raises:
        DataError: it is damaged, or has more bytes than the limit.
    """
    packed = file.read(2) == _GZIP
    file.seek(0)
    parts, size = [], 0
    try:
        source = gzip.GzipFile(fileobj=file) if packed else file
        while part := source.read(_PIECE):
            parts.append(part)
            size += len(part)
            if size > limit:
                raise DataError(f"{name} has more than {limit:,} bytes: it is another file")
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{name} is damaged ({error}): download it again") from error
    return b"".join(parts)
