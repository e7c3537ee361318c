"""What a store of blobs does, and blobs in a folder: each one file, synced, then renamed into it.

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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, Protocol

from app.errors import StorageFull, Unavailable
from app.infra import fail_points
from app.infra.private_files import prepare_folder

__all__ = [
    "KEY",
    "LINEAGE",
    "STORE_ID",
    "BlobStore",
    "DamagedBlob",
    "FileBlobs",
    "map_file",
    "new_keys",
]

_TEMPORARY = ".part"
KEY: Final = re.compile(r"(learngenes/|sketches/)?\d+/[0-9a-f]{2}/[0-9a-f]{32}(\.part)?")
"""What a sweep may remove of a realm; all others belong to other programs."""
LINEAGE: Final = "lineage"
STORE_ID: Final = ".store"
_CLOCK = ".clock-"
_MIN_MAPPED_BYTES = 1 << 16
_MAX_SYNCS = 16
"""Files that are synced at a time."""
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class DamagedBlob(Unavailable):
    """The store has a blob that is cut, changed, or none of this service's."""


class FileBlobs:
    """A :class:`BlobStore` in a folder of this machine.

    Args:
        root: the folder; :meth:`prepare` creates it if it is missing.
        realm: the token of one database, a folder in ``root``. Nothing beside it is touched, so
            databases that share ``root`` never sweep each other's blobs.
    """

    keeps_heads = False

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

    def put(self, prefix: str, data: bytes | bytearray, head: bytes = b"") -> str:
        return self.put_many(prefix, [data], [head])[0]

    def put_many(
        self,
        prefix: str,
        contents: Sequence[bytes | bytearray],
        heads: Sequence[bytes] = (),  # noqa: ARG002 (see keeps_heads)
    ) -> list[str]:
        keys = new_keys(self._realm, prefix, len(contents))
        files = {self.root / key: data for key, data in zip(keys, contents, strict=True)}
        try:
            try:
                self._write(files)
            except FileNotFoundError:  # the prefix was deleted meanwhile: create its folder again
                self._write(files)
        except OSError as error:
            raise _unwritten(error) from error
        return keys

    def write(self, key: str, data: bytes | bytearray | memoryview, head: bytes = b"") -> None:  # noqa: ARG002
        """Store a blob under a key that no other has had."""
        try:
            self._write({self.root / key: data})
        except OSError as error:
            raise _unwritten(error) from error

    def open(self, key: str) -> memoryview:
        try:
            return map_file(f"{self.root}/{key}")
        except FileNotFoundError:
            raise KeyError(key) from None
        except OSError as error:
            raise _unreadable(error) from error

    def read(self, key: str) -> memoryview:
        try:
            return memoryview((self.root / key).read_bytes())
        except FileNotFoundError:
            raise KeyError(key) from None
        except OSError as error:
            raise _unreadable(error) from error

    def head(self, _key: str, /) -> bytes | None:
        return None

    def holds(self, key: str, data: bytes | bytearray) -> bool:
        try:
            return bytes(self.open(key)) == data
        except KeyError:
            self._require_folder()
            return False
        except Unavailable as error:
            cause = error.__cause__
            if isinstance(cause, OSError) and cause.errno == errno.EIO:  # the disk has lost it
                return False
            raise

    def fetch(self, _keys: Iterable[str], _within: float, /) -> set[str]:
        return set()

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

    def delete_many(self, keys: Sequence[str]) -> None:
        for key in keys:
            self.delete(key)

    def delete_folder(self, key: str) -> None:
        shutil.rmtree(self.root / key, ignore_errors=True)

    def keys(self, *, older_than: float = 0.0) -> Iterator[str]:
        realm, horizon = self.root / self._realm, self._now() - older_than
        for folder, _, names in os.walk(realm):
            for name in names:
                path = Path(folder, name)
                key = path.relative_to(realm).as_posix()
                with contextlib.suppress(FileNotFoundError):
                    if KEY.fullmatch(key) and path.stat().st_mtime <= horizon:
                        yield f"{self._realm}/{key}"

    def lineage(self) -> str | None:
        try:
            return (self.root / self._realm / LINEAGE).read_text(encoding="ascii")
        except (OSError, UnicodeDecodeError):
            return None

    def set_lineage(self, lineage: str) -> None:
        try:
            self._write({self.root / self._realm / LINEAGE: lineage.encode("ascii")})
        except OSError as error:
            raise Unavailable(
                f"the lineage of the supports could not be written: {error.strerror}"
            ) from error

    def store_id(self) -> str | None:
        try:
            return (self.root / self._realm / STORE_ID).read_text(encoding="ascii")
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise Unavailable("the id of the store of supports could not be read") from error

    def claim_store_id(self, drawn: str) -> str:
        place = self.root / self._realm / STORE_ID
        mine = place.with_name(f"{STORE_ID}-{secrets.token_hex(8)}")
        try:
            self._write({mine: drawn.encode("ascii")})
            try:
                os.link(mine, place)  # which fails where another has one, and is never half a file
                _sync_folder(place.parent)
            except FileExistsError:
                pass
            finally:
                mine.unlink()
        except OSError as error:
            raise Unavailable(
                f"the id of the store of supports could not be written: {error.strerror}"
            ) from error
        return self.store_id() or drawn

    def close(self) -> None:
        """Nothing stays open."""

    def _now(self) -> float:
        """The time by the clock that gives files theirs, which may be another machine's."""
        probe = self.root / self._realm / f"{_CLOCK}{secrets.token_hex(8)}"
        try:
            probe.touch()
            return probe.stat().st_mtime
        except OSError:
            return time.time()
        finally:
            with contextlib.suppress(OSError):
                probe.unlink()

    def _require_folder(self) -> None:
        """Require the folder of the realm, which a start has made.

        Raises:
            Unavailable: it is gone, as where a disk is not mounted any more.
        """
        folder = self.root / self._realm
        if not folder.is_dir():
            raise Unavailable("the folder of supports is gone", reason=str(folder))

    def _write(self, files: Mapping[Path, bytes | bytearray | memoryview]) -> None:
        """Write files of one folder, all or none; a disk syncs many in the time of a few."""
        self._require_folder()
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
        """Create ``folder``, and sync each parent: a file lasts no longer than its folder.

        That of the realm is not made again: a disk that went away may have had it.
        """
        missing, realm = [], self.root / self._realm
        while folder != realm and not folder.exists():
            missing.append(folder)
            folder = folder.parent
        for new in reversed(missing):
            new.mkdir(exist_ok=True)
            _sync_folder(new.parent)


def _unwritten(error: OSError) -> StorageFull | Unavailable:
    kind = StorageFull if error.errno in _NO_ROOM else Unavailable
    return kind(f"the support could not be written: {error.strerror}")


def _write_synced(path: Path, data: bytes | bytearray | memoryview) -> None:
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
    """Immutable bytes under opaque keys. A key never holds anything a user wrote.

    *There is no such blob* and *the store cannot be asked* are two answers: a ``KeyError``, and
    :class:`Unavailable`.
    """

    @property
    def keeps_heads(self) -> bool:
        """Whether heads are stored; else they need not be made."""

    def prepare(self) -> None:
        """Make the store ready; raises ``Unavailable`` where it cannot be used."""

    def put(self, prefix: str, data: bytes | bytearray, head: bytes = b"") -> str:
        """Store ``data`` and return its new key; then it survives a power loss."""

    def put_many(
        self,
        prefix: str,
        contents: Sequence[bytes | bytearray],
        heads: Sequence[bytes] = (),
    ) -> list[str]:
        """Store several, side by side, all or none; then they survive a power loss.

        Args:
            prefix: that their keys begin with.
            contents: the data.
            heads: 8 KiB at most of each, that a store far away can read without its data.
        """

    def write(self, key: str, data: bytes | bytearray | memoryview, head: bytes = b"") -> None:
        """Store a blob under a key that no other has had: that of a backup."""

    def open(self, key: str) -> memoryview:
        """The bytes, mapped if possible; ``KeyError`` if there is no such blob."""

    def read(self, key: str) -> memoryview:
        """The bytes in memory, from the store itself; ``KeyError`` if there is no such blob."""

    def head(self, key: str, /) -> bytes | None:
        """The head of a blob; None where the store keeps none, or ``KeyError``."""

    def size(self, key: str) -> int | None:
        """The bytes of a blob; None if there is none of this key."""

    def holds(self, key: str, data: bytes | bytearray) -> bool:
        """Whether the blob is there and its bytes are ``data``.

        Raises:
            Unavailable: the store cannot say so now.
        """

    def fetch(self, keys: Iterable[str], within: float, /) -> set[str]:
        """Bring blobs to this machine, side by side, so that :meth:`open` is fast.

        Args:
            keys: of the blobs.
            within: seconds that it may take.

        Returns:
            The keys of those that did not come in time.
        """

    def delete(self, key: str) -> None:
        """Delete one blob, if it exists and the store is there; a sweep finds what is left."""

    def delete_many(self, keys: Sequence[str]) -> None:
        """Delete blobs, as far as they exist; raises ``Unavailable`` where some may be left."""

    def delete_folder(self, key: str) -> None:
        """Delete all blobs whose keys begin with ``key``, which ends with a slash."""

    def keys(self, *, older_than: float = 0.0) -> Iterator[str]:
        """The keys of all blobs that are older than so many seconds, unfinished ones included."""

    def lineage(self) -> str | None:
        """What :meth:`set_lineage` wrote last; None where that is lost."""

    def set_lineage(self, lineage: str) -> None:
        """Note the lineage of the database that has swept the blobs, beside them."""

    def store_id(self) -> str | None:
        """The id of this store; None where no start has claimed one."""

    def claim_store_id(self, drawn: str) -> str:
        """Give the store an id if it has none; return the one that it has."""

    def close(self) -> None:
        """Release what is open."""


def new_keys(realm: str, prefix: str, count: int) -> list[str]:
    """Keys that no blob has had, all in one folder, which is synced once for all of them."""
    part = secrets.token_hex(1)
    return [f"{realm}/{prefix}/{part}/{part}{secrets.token_hex(15)}" for _ in range(count)]


def map_file(path: str) -> memoryview:
    """The content of a file: mapped, unless it is small or no descriptor is left for a mapping.

    A query opens dozens of supports: a Path and a file object would take most of the time.

    Raises:
        OSError: it is not there, or cannot be read.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(descriptor).st_size
        if size < _MIN_MAPPED_BYTES:
            return _whole(descriptor, size)
        try:
            return memoryview(mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ))
        except OSError as error:
            if error.errno != errno.EMFILE:
                raise
            return _whole(descriptor, size)
    finally:
        os.close(descriptor)


def _whole(descriptor: int, size: int) -> memoryview:
    """The content of an open file; a system may return it in parts."""
    data = os.read(descriptor, size)
    while part := os.read(descriptor, size - len(data)) if len(data) < size else b"":
        data += part
    return memoryview(data)


def _unreadable(error: OSError) -> Unavailable:
    return Unavailable(f"a stored support could not be read: {error.strerror}")
