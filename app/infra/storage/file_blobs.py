"""Blobs in a folder: each blob is one file, synced, then renamed into its place.

A crash leaves at most a file that no row names; ``keys`` lists all of them for a sweep. This module
never reads the content of a blob.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from app.infra import fail_points
from app.infra.errors import StorageFull, Unavailable
from app.infra.private_files import prepare_folder
from app.infra.storage.blobs import KEY, LINEAGE, STORE_ID, Decode, new_keys
from app.infra.storage.guarded_maps import GuardedMap
from app.infra.storage.verified_files import VerifiedFiles

__all__ = ["FileBlobs", "has_content", "read_file"]

T = TypeVar("T")

_TEMPORARY = ".part"
_CLOCK = ".clock-"
_MIN_MAPPED_BYTES = 1 << 16
_COMPARED_BYTES = 1 << 20
_MAX_SYNCS = 16
"""Files that are synced at a time."""
_NO_LINKS = {errno.EPERM, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}
"""The errors of file systems without hard links, such as SMB's."""
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class FileBlobs:
    """A :class:`app.infra.storage.blobs.BlobStore` in a folder of this machine.

    Args:
        root: the folder; :meth:`prepare` creates it if it is missing.
        realm: the token of one database, a folder in ``root``. Nothing beside it is touched, so
            databases that share ``root`` never sweep each other's blobs.
    """

    keeps_heads = False

    def __init__(self, root: Path, realm: str) -> None:
        self.root = root
        self._realm = realm
        self._verified = VerifiedFiles()

    def prepare(self) -> None:
        """Create the folder and, for its owner alone, the realm's in it; try to write there.

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
        return self._read(key)[0]

    def open_verified(self, key: str, decode: Decode[T], *, mapped: bool = False) -> T:
        data, status = self._read(key, mapped=mapped)
        return self._verified.decode(key, status, data, decode)

    def read(self, key: str) -> memoryview:
        return self.open(key)

    def head(self, _key: str, /) -> bytes | None:
        return None

    def heads(self, keys: Sequence[str], _within: float, /) -> dict[str, bytes]:
        return dict.fromkeys(keys, b"")

    def holds(self, key: str, data: bytes | bytearray) -> bool:
        try:
            return has_content(f"{self.root}/{key}", data)
        except FileNotFoundError:
            self._require_folder()
            return False
        except OSError as error:
            if error.errno == errno.EIO:  # the disk has lost it
                return False
            raise _unreadable(error) from error

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
                _name_once(mine, place)
                _sync_folder(place.parent)
            except FileExistsError:
                pass
            finally:
                mine.unlink(missing_ok=True)
        except OSError as error:
            raise Unavailable(
                f"the id of the store of supports could not be written: {error.strerror}"
            ) from error
        return self.store_id() or drawn

    def close(self) -> None:
        """Nothing stays open."""

    def _read(self, key: str, *, mapped: bool = False) -> tuple[memoryview, os.stat_result]:
        try:
            return read_file(f"{self.root}/{key}", mapped=mapped)
        except FileNotFoundError:
            raise KeyError(key) from None
        except OSError as error:
            raise _unreadable(error) from error

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
            Unavailable: the folder is gone, as when a disk is not mounted any more.
        """
        folder = self.root / self._realm
        if not folder.is_dir():
            raise Unavailable("the folder of supports is gone", reason=str(folder))

    def _write(self, files: Mapping[Path, bytes | bytearray | memoryview]) -> None:
        """Write files of one folder, all or none; a disk syncs many files in the time of a few."""
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
            for path in (*parts.values(), *renamed):  # a replaced file stays until then
                path.unlink(missing_ok=True)
            raise

    def _make_folder(self, folder: Path) -> None:
        """Create ``folder``, and sync each parent: a file lasts no longer than its folder.

        The realm's folder is not made again: it may be on a disk that went away.
        """
        missing, realm = [], self.root / self._realm
        while folder != realm and not folder.exists():
            missing.append(folder)
            folder = folder.parent
        for new in reversed(missing):
            new.mkdir(exist_ok=True)
            _sync_folder(new.parent)


def _unwritten(error: OSError) -> StorageFull | Unavailable:
    error_type = StorageFull if error.errno in _NO_ROOM else Unavailable
    return error_type(f"the support could not be written: {error.strerror}")


def _write_synced(path: Path, data: bytes | bytearray | memoryview) -> None:
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        with fail_points.around("fsync"):
            os.fsync(file.fileno())


def _name_once(file: Path, place: Path) -> None:
    """Give a file a name that no other file has yet.

    Raises:
        FileExistsError: another file has the name.
    """
    try:
        os.link(file, place)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        os.close(os.open(place, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        os.rename(file, place)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with fail_points.around("fsync"):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_file(path: str, *, mapped: bool = False) -> tuple[memoryview, os.stat_result]:
    """Return the content of a file, and its state before the content was read.

    A query opens dozens of supports: a Path and a file object would take most of the time.

    Args:
        path: the path of the file.
        mapped: whether a file that is not small is mapped, if a descriptor is left for it.

    Raises:
        OSError: the file does not exist, or cannot be read.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if mapped and status.st_size >= _MIN_MAPPED_BYTES:
            try:
                return GuardedMap(descriptor, status.st_size).view, status
            except OSError as error:
                if error.errno != errno.EMFILE:
                    raise
        return _whole(descriptor, status.st_size), status
    finally:
        os.close(descriptor)


def has_content(path: str, data: bytes | bytearray, *, more: int = 0) -> bool:
    """Whether a file is these bytes, and some more; no copy of it is in memory.

    Raises:
        OSError: the file does not exist, or cannot be read.
    """
    with open(path, "rb", buffering=0) as file:
        if os.fstat(file.fileno()).st_size != len(data) + more:
            return False
        parts = (data[at : at + _COMPARED_BYTES] for at in range(0, len(data), _COMPARED_BYTES))
        return all(file.read(len(part)) == part for part in parts)


def _whole(descriptor: int, size: int) -> memoryview:
    """The content of an open file; a system may return it in parts."""
    data = os.read(descriptor, size)
    while part := os.read(descriptor, size - len(data)) if len(data) < size else b"":
        data += part
    return memoryview(data)


def _unreadable(error: OSError) -> Unavailable:
    return Unavailable(f"a stored support could not be read: {error.strerror}")
