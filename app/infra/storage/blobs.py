"""Blobs in a folder: each one file, written beside its place, synced, then renamed into it.

A crash leaves at most a file that no row names; ``keys`` lists all of them for a sweep. This module
never reads the content of a blob.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

from app.errors import StorageFull, Unavailable
from app.infra import fail_points
from app.infra.private_files import prepare_folder

__all__ = ["FileBlobs", "BlobStore"]

_TEMPORARY = ".part"
_KEY = re.compile(r"(learngenes/)?\d+/[0-9a-f]{2}/[0-9a-f]{32}(\.part)?")
"""Files that a sweep may remove; all others in the folder belong to other programs."""
_LINEAGE = "lineage"
_MIN_MAPPED_BYTES = 1 << 16
_MAX_SYNCS = 16
"""Files that are synced at a time."""
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class FileBlobs:
    """A :class:`BlobStore` in a folder of this machine.

    Args:
        root: the folder; :meth:`prepare` creates it if it is missing.
        realm: the token of one database, a folder in ``root``. Nothing beside it is touched, so
            databases that share ``root`` never sweep each other's blobs.
    """

    def __init__(self, root: Path, realm: str) -> None:
        self.root = root
        self._realm = realm

    def prepare(self) -> None:
        """Create the folder, with one of the realm for its owner alone, and try to write there.

        Raises:
            Unavailable: the folder cannot be created or written.
        """
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            prepare_folder(self.root / self._realm)
            probe = self.root / f"probe-{secrets.token_hex(8)}{_TEMPORARY}"
            probe.write_bytes(b"")
            probe.unlink()
        except OSError as error:
            reason = f"{self.root}: {error.strerror}"
            raise Unavailable("cannot write supports", reason=reason) from error

    def put(self, prefix: str, data: bytes | bytearray) -> str:
        return self.put_many(prefix, [data])[0]

    def put_many(self, prefix: str, contents: Sequence[bytes | bytearray]) -> list[str]:
        # All in one folder, which then is synced once for all of them.
        part = secrets.token_hex(1)
        folder = f"{self._realm}/{prefix}/{part}"
        keys = [f"{folder}/{part}{secrets.token_hex(15)}" for _ in contents]
        files = {self.root / key: data for key, data in zip(keys, contents, strict=True)}
        try:
            try:
                self._write(files)
            except FileNotFoundError:  # the prefix was deleted meanwhile: create its folder again
                self._write(files)
        except OSError as error:
            kind = StorageFull if error.errno in _NO_ROOM else Unavailable
            raise kind(f"the support could not be written: {error.strerror}") from error
        return keys

    def open(self, key: str) -> memoryview:
        # A query opens dozens of supports: a Path and a file object would take most of the time.
        try:
            descriptor = os.open(f"{self.root}/{key}", os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise KeyError(key) from None
        except OSError as error:
            raise _unreadable(error) from error
        try:
            size = os.fstat(descriptor).st_size
            if size < _MIN_MAPPED_BYTES:
                return _whole(descriptor, size)
            try:
                return memoryview(mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ))
            except OSError as error:  # no descriptor left for a mapping: read
                if error.errno != errno.EMFILE:
                    raise
                return _whole(descriptor, size)
        except OSError as error:
            raise _unreadable(error) from error
        finally:
            os.close(descriptor)

    def size(self, key: str) -> int | None:
        try:
            return os.stat(self.root / key).st_size
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise Unavailable("a stored support could not be measured") from error

    def delete(self, key: str) -> None:
        with contextlib.suppress(OSError), fail_points.around("unlink"):
            os.unlink(self.root / key)

    def delete_folder(self, key: str) -> None:
        shutil.rmtree(self.root / key, ignore_errors=True)

    def keys(self, *, older_than: float = 0.0) -> Iterator[str]:
        realm, horizon = self.root / self._realm, time.time() - older_than
        for folder, _, names in os.walk(realm):
            for name in names:
                path = Path(folder, name)
                key = path.relative_to(realm).as_posix()
                with contextlib.suppress(FileNotFoundError):
                    if _KEY.fullmatch(key) and path.stat().st_mtime <= horizon:
                        yield f"{self._realm}/{key}"

    def lineage(self) -> str | None:
        try:
            return (self.root / self._realm / _LINEAGE).read_text(encoding="ascii")
        except (OSError, UnicodeDecodeError):
            return None

    def set_lineage(self, lineage: str) -> None:
        try:
            self._write({self.root / self._realm / _LINEAGE: lineage.encode("ascii")})
        except OSError as error:
            raise Unavailable(
                f"the lineage of the supports could not be written: {error.strerror}"
            ) from error

    def _write(self, files: Mapping[Path, bytes | bytearray]) -> None:
        """Write files of one folder, all or none; a disk syncs many in the time of a few."""
        for folder in {path.parent for path in files}:
            self._make_folder(folder)
        parts = {path: path.with_suffix(_TEMPORARY) for path in files}
        renamed: list[Path] = []
        try:
            if len(files) > 1:
                with ThreadPoolExecutor(min(len(files), _MAX_SYNCS)) as writers:
                    list(writers.map(_write_synced, parts.values(), files.values()))
            else:
                for path, data in files.items():
                    _write_synced(parts[path], data)
            for path, part in parts.items():
                with fail_points.around("rename"):
                    os.rename(part, path)
                renamed.append(path)
            for folder in {path.parent for path in files}:
                _sync_folder(folder)
        except OSError:
            for path in (*parts.values(), *renamed):  # what a file replaces stays until then
                path.unlink(missing_ok=True)
            raise

    def _make_folder(self, folder: Path) -> None:
        """Create ``folder``, and sync each parent: a file lasts no longer than its folder."""
        missing = []
        while not folder.exists():
            missing.append(folder)
            folder = folder.parent
        for new in reversed(missing):
            new.mkdir(exist_ok=True)
            _sync_folder(new.parent)


def _write_synced(path: Path, data: bytes | bytearray) -> None:
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        with fail_points.around("fsync"):
            os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with fail_points.around("fsync"):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


class BlobStore(Protocol):
    """Immutable bytes under opaque keys. A key never holds anything a user wrote."""

    def put(self, prefix: str, data: bytes | bytearray) -> str:
        """Store ``data`` and return its new key; then it survives a power loss."""

    def put_many(self, prefix: str, contents: Sequence[bytes | bytearray]) -> list[str]:
        """Store several, side by side, all or none; then they survive a power loss."""

    def open(self, key: str) -> memoryview:
        """The bytes, mapped if possible; ``KeyError`` if there is no such blob."""

    def size(self, key: str) -> int | None:
        """The bytes of a blob; None if there is none of this key."""

    def delete(self, key: str) -> None:
        """Delete one blob, if it exists."""

    def delete_folder(self, key: str) -> None:
        """Delete all blobs whose keys begin with ``key``, which ends with a slash."""

    def keys(self, *, older_than: float = 0.0) -> Iterator[str]:
        """The keys of all blobs that are older than so many seconds, unfinished ones included."""

    def lineage(self) -> str | None:
        """What :meth:`set_lineage` wrote last; None where that is lost."""

    def set_lineage(self, lineage: str) -> None:
        """Note the lineage of the database that has swept the blobs, beside them."""


def _whole(descriptor: int, size: int) -> memoryview:
    """The content of an open file; a system may return it in parts."""
    data = os.read(descriptor, size)
    while part := os.read(descriptor, size - len(data)) if len(data) < size else b"":
        data += part
    return memoryview(data)


def _unreadable(error: OSError) -> Unavailable:
    return Unavailable(f"a stored support could not be read: {error.strerror}")
