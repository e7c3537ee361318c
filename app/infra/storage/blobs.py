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
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

from app.errors import StorageFull, Unavailable
from app.infra.private_files import prepare_folder

__all__ = ["FileBlobs", "BlobGroup", "BlobStore"]

_TEMPORARY = ".part"
_KEY = re.compile(r"\d+/[0-9a-f]{2}/[0-9a-f]{32}(\.part)?")
"""Files that a sweep may remove; all others in the folder belong to other programs."""
_LINEAGE = "lineage"
_MIN_MAPPED_BYTES = 1 << 16
_SYNCING_THREADS = 16
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

    def put(self, prefix: str, data: bytes) -> str:
        token = secrets.token_hex(16)
        key = f"{self._realm}/{prefix}/{token[:2]}/{token}"
        try:
            try:
                self._write(self.root / key, data)
            except FileNotFoundError:  # the prefix was deleted meanwhile: create its folder again
                self._write(self.root / key, data)
        except OSError as error:
            raise _unwritable(error) from error
        return key

    def group(self, prefix: str) -> BlobGroup:
        return _Group(self.root, f"{self._realm}/{prefix}/{secrets.token_hex(1)}")

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
        with contextlib.suppress(OSError):
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
            self._write(self.root / self._realm / _LINEAGE, lineage.encode("ascii"))
        except OSError as error:
            raise Unavailable(
                f"the lineage of the supports could not be written: {error.strerror}"
            ) from error

    def _write(self, path: Path, data: bytes) -> None:
        _make_folder(path.parent)
        temporary = path.with_suffix(_TEMPORARY)
        try:
            with open(temporary, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.rename(temporary, path)
            _sync(path.parent)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise


class _Group:
    """Files of one folder, none of which is known before all are synced.

    A disk syncs many files at once in hardly more time than one: so many threads wait for it.
    """

    def __init__(self, root: Path, folder: str) -> None:
        self._root = root
        self._folder = folder
        self._unsynced: list[Path] = []

    def put(self, data: bytes) -> str:
        # A key begins with the letters of its folder, as all do.
        key = f"{self._folder}/{self._folder[-2:]}{secrets.token_hex(15)}"
        path = self._root / key
        try:
            try:
                path.write_bytes(data)
            except FileNotFoundError:  # it is the first one, or the prefix was deleted meanwhile
                _make_folder(path.parent)
                path.write_bytes(data)
        except OSError as error:
            path.unlink(missing_ok=True)
            raise _unwritable(error) from error
        self._unsynced.append(path)
        return key

    def sync(self) -> None:
        written, self._unsynced = self._unsynced, []
        if not written:
            return
        try:
            threads = min(len(written), _SYNCING_THREADS)
            with ThreadPoolExecutor(threads, thread_name_prefix="blob-sync") as pool:
                deque(pool.map(_sync, written), maxlen=0)
            _sync(written[0].parent)
        except OSError as error:
            raise _unwritable(error) from error


def _make_folder(folder: Path) -> None:
    """Create ``folder``, and sync each parent: a file lasts no longer than its folder."""
    missing = []
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    for new in reversed(missing):
        new.mkdir(exist_ok=True)
        _sync(new.parent)


def _sync(path: Path) -> None:
    """Sync a file or a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class BlobGroup(Protocol):
    """Blobs that become durable together."""

    def put(self, data: bytes) -> str:
        """Write ``data`` and return its new key, which is to be used once :meth:`sync` returns."""

    def sync(self) -> None:
        """Make all that was put since the last time survive a power loss."""


class BlobStore(Protocol):
    """Immutable bytes under opaque keys. A key never holds anything a user wrote."""

    def put(self, prefix: str, data: bytes) -> str:
        """Store ``data`` and return its new key; then it survives a power loss."""

    def group(self, prefix: str) -> BlobGroup:
        """Blobs that are synced together, under new keys."""

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


def _unwritable(error: OSError) -> Unavailable:
    kind = StorageFull if error.errno in _NO_ROOM else Unavailable
    return kind(f"the support could not be written: {error.strerror}")


def _unreadable(error: OSError) -> Unavailable:
    return Unavailable(f"a stored support could not be read: {error.strerror}")
