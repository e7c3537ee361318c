"""Members of a package's archive, read by name and never extracted."""

from __future__ import annotations

import io
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import IO, Final

from studies.real.errors import InvalidFile

__all__ = ["read_members"]

_MAX_BYTES: Final = 1 << 30
"""The most bytes of all members that are read; the largest package here has 110 MB of weights."""
_AR: Final = b"!<arch>\n"
_AR_HEADER: Final = 60
_DAMAGED: Final = (
    zipfile.BadZipFile,
    tarfile.TarError,
    zlib.error,
    lzma.LZMAError,
    NotImplementedError,
    RuntimeError,
    EOFError,
    OSError,
    ValueError,
)
"""The errors that the standard library raises for archives that are not whole."""


def read_members(path: Path, wanted: Callable[[str], bool]) -> dict[str, bytes]:
    """Members whose name is wanted, by name, in the order of the archive.

    Args:
        path: of a wheel, a tarball or a package of Debian.
        wanted: whether a name is.

    Raises:
        InvalidFile: it is not an archive or is damaged, a member's name leads out of it or is a
            link, or what is wanted is more than a gigabyte.
    """
    try:
        found = dict(_READERS.get(path.suffix, _tar)(path, wanted))
    except InvalidFile:
        raise
    except _DAMAGED as error:
        raise InvalidFile(f"{path.name}: a damaged archive: {error!s:.80}") from None
    return found


def _zip(path: Path, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    left = _MAX_BYTES
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            _check_name(path, info.filename)
        for info in archive.infolist():
            if not info.is_dir() and wanted(info.filename):
                with archive.open(info) as member:
                    data = _whole(path, member, left)
                left -= len(data)
                yield info.filename, data


def _deb(path: Path, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    """Members of the tarball ``data.tar``, which is a member of an archive of ``ar``."""
    with path.open("rb") as file:
        if file.read(len(_AR)) != _AR:
            raise InvalidFile(f"{path.name}: a damaged archive: it does not begin as one of ar")
        while header := file.read(_AR_HEADER):
            size = int(header[48:58])
            if header.startswith(b"data.tar"):
                yield from _tar(path, wanted, io.BytesIO(file.read(size)))
                return
            file.seek(size + size % 2, io.SEEK_CUR)
    raise InvalidFile(f"{path.name}: a damaged archive: it has no data.tar")


def _tar(
    path: Path, wanted: Callable[[str], bool], file: IO[bytes] | None = None
) -> Iterator[tuple[str, bytes]]:
    left = _MAX_BYTES
    with tarfile.open(path, fileobj=file) as archive:
        for info in archive:  # in one pass: the whole is compressed as one
            _check_name(path, info.name)
            if not info.isreg() and not info.isdir():
                raise InvalidFile(f"{path.name}: {info.name} is a link or a device")
            member = archive.extractfile(info) if wanted(info.name) else None
            if member is not None:
                data = _whole(path, member, left)
                left -= len(data)
                yield info.name, data


def _whole(path: Path, member: IO[bytes], left: int) -> bytes:
    data = member.read(left + 1)
    if len(data) > left:
        raise InvalidFile(f"{path.name}: more than {_MAX_BYTES:,} bytes of members")
    return data


def _check_name(path: Path, name: str) -> None:
    parts = PurePosixPath(name.replace("\\", "/"))
    if parts.is_absolute() or ".." in parts.parts or ":" in (parts.parts or ("",))[0]:
        raise InvalidFile(f"{path.name}: the member {name!r} leads out of its folder")


_READERS: Final = {".whl": _zip, ".deb": _deb}
"""By the ends of files' names; all others are tarballs."""
