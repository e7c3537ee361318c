"""Blobs cached on this machine's disk, over a remote or shared store.

A cached blob is one file, the data and their CRC-32. The file is written beside its place, renamed
into it, and from then on only ever unlinked. Keys are never reused, so nothing is ever stale.
Losing the cache loses nothing, so nothing is synced: a file that was last used before this
machine's last start is compared with its checksum before it is used. A file whose content is not
its row's is deleted, and fetched again. The time of a file's last access says when it was used:
that of its last change shows that it is the file that this process has verified. To write the first
one changes the second, so a file in use is verified again once a minute. Processes of a machine
share the folder without a lock.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import shutil
import threading
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from app.infra import fail_points
from app.infra.errors import Unavailable
from app.infra.private_files import prepare_folder
from app.infra.storage.blobs import BlobStore, DamagedBlob, Decode
from app.infra.storage.file_blobs import has_content, read_file
from app.infra.storage.verified_files import VerifiedFiles

__all__ = ["CachedBlobs"]

T = TypeVar("T")
log = logging.getLogger(__name__)

_MAX_DOWNLOADS: Final = 32
_SUM_BYTES: Final = 4
_SHARE_OF_FREE: Final = 0.8
_KEPT_SHARE: Final = 0.9
"""The share of the limit that an eviction leaves, so that not every download evicts."""
_CHECKS_PER_LIMIT: Final = 16
"""A process measures the whole folder whenever it has written this part, a 16th, of the limit."""
_USE_S: Final = 60.0
"""Seconds in which a file that is used again keeps the time of its last use."""
_PART: Final = ".part"
_MAX_WAIT_S: Final = 3600.0
_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


@dataclass(slots=True)
class _Download:
    """One download, and the number of its waiting threads."""

    future: Future[memoryview | None]
    waiting: int = 0


class CachedBlobs:
    """A :class:`BlobStore` whose blobs are opened from a folder of this machine.

    Args:
        folder: the folder of the cache, which has no other files.
        max_bytes: the most bytes of the cache; None for 80% of the free space. The least recently
            used blobs are evicted.
    """

    def __init__(self, store: BlobStore, folder: Path, max_bytes: int | None = None) -> None:
        self._store = store
        self._folder = folder
        self._max_bytes = max_bytes
        self._lock = threading.RLock()  # a download that is given up ends at once
        self._downloads: dict[str, _Download] = {}
        self._pool = ThreadPoolExecutor(_MAX_DOWNLOADS, thread_name_prefix="blobs")
        self._room = threading.Lock()
        self._used: int | None = None
        self._written = 0
        self._verified = VerifiedFiles()

    @property
    def keeps_heads(self) -> bool:
        return self._store.keeps_heads

    @property
    def downloading(self) -> frozenset[str]:
        """The keys of blobs that are on their way, or wait for their turn."""
        with self._lock:
            return frozenset(self._downloads)

    def prepare(self) -> None:
        try:
            self._folder.parent.mkdir(parents=True, exist_ok=True)
            prepare_folder(self._folder)
        except OSError as error:
            reason = f"{self._folder}: {error.strerror}"
            raise Unavailable("cannot cache supports", reason=reason) from error
        self._store.prepare()

    def put(self, prefix: str, data: bytes | bytearray, head: bytes = b"") -> str:
        return self.put_many(prefix, [data], [head])[0]

    def put_many(
        self,
        prefix: str,
        contents: Sequence[bytes | bytearray],
        heads: Sequence[bytes] = (),
    ) -> list[str]:
        keys = self._store.put_many(prefix, contents, heads)
        for key, data in zip(keys, contents, strict=True):
            self._keep(key, data)
        return keys

    def write(self, key: str, data: bytes | bytearray | memoryview, head: bytes = b"") -> None:
        self._store.write(key, data, head)

    def open(self, key: str) -> memoryview:
        found = self._cached(key)
        return self._fetched(key) if found is None else found[0]

    def open_verified(self, key: str, decode: Decode[T], *, mapped: bool = False) -> T:
        found = self._decoded(key, decode, mapped=mapped)
        if found is None:
            data = self._fetched(key)
            found = self._decoded(key, decode, mapped=mapped)
            return decode(data, verified=False) if found is None else found[0]
        return found[0]

    def read(self, key: str) -> memoryview:
        return self._store.read(key)

    def head(self, key: str) -> bytes | None:
        return self._store.head(key)

    def heads(self, keys: Sequence[str], within: float, /) -> dict[str, bytes]:
        if not self.keeps_heads:
            return self._store.heads(keys, within)
        reads = [self._pool.submit(self._store.heads, [key], within) for key in keys]
        wait(reads, min(within, _MAX_WAIT_S))
        found = dict[str, bytes]()
        for read in reads:
            if not read.cancel() and read.done():
                found |= read.result()
        return found

    def size(self, key: str) -> int | None:
        return self._store.size(key)

    def holds(self, key: str, data: bytes | bytearray) -> bool:
        if not self._store.holds(key, data):
            return False
        with contextlib.suppress(OSError):
            if not has_content(self._path(key), data, more=_SUM_BYTES):  # a disk may lose data
                self._forget(key)
        return True

    def fetch(self, keys: Iterable[str], within: float, /) -> set[str]:
        missing = [key for key in keys if not os.path.exists(self._path(key))]
        if not missing:
            return set()
        with self._downloads_of(missing) as downloads:
            wait(downloads, min(within, _MAX_WAIT_S))
            ended = zip(missing, downloads, strict=True)
            return {key for key, download in ended if _is_missed(download)}

    def delete(self, key: str) -> None:
        self._store.delete(key)
        self._forget(key)

    def delete_many(self, keys: Sequence[str]) -> None:
        self._store.delete_many(keys)
        for key in keys:
            self._forget(key)

    def delete_folder(self, key: str) -> None:
        self._store.delete_folder(key)
        shutil.rmtree(self._path(key), ignore_errors=True)

    def keys(self, *, older_than: float = 0.0) -> Iterator[str]:
        return self._store.keys(older_than=older_than)

    def lineage(self) -> str | None:
        return self._store.lineage()

    def set_lineage(self, lineage: str) -> None:
        self._store.set_lineage(lineage)

    def store_id(self) -> str | None:
        return self._store.store_id()

    def claim_store_id(self, drawn: str) -> str:
        return self._store.claim_store_id(drawn)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._store.close()

    def _path(self, key: str) -> str:
        return f"{self._folder}/{key}"

    def _cached(
        self, key: str, *, mapped: bool = False
    ) -> tuple[memoryview, os.stat_result] | None:
        """A cached blob and the state of its file; None if there is none, or a spoilt one."""
        path = self._path(key)
        try:
            file, status = read_file(path, mapped=mapped)
            if status.st_atime < time.time() - _USE_S:
                os.utime(path, ns=(time.time_ns(), status.st_mtime_ns))
        except OSError:
            return None
        data, total = file[:-_SUM_BYTES], file[-_SUM_BYTES:]
        if status.st_atime <= _boot_time() and _sum(data) != total:
            self._forget(key)
            return None
        return data, status

    def _decoded(self, key: str, decode: Decode[T], *, mapped: bool) -> tuple[T] | None:
        """The decoded copy of this machine; None if there is none, or a damaged one."""
        cached = self._cached(key, mapped=mapped)
        if cached is None:
            return None
        data, status = cached
        try:
            return (self._verified.decode(key, status, data, decode),)
        except DamagedBlob as error:
            log.warning("the copy of %s on this machine is deleted: %s", key, error)
            self._forget(key)
            return None

    def _fetched(self, key: str) -> memoryview:
        """The data of a blob, once its download has ended."""
        with self._downloads_of([key]) as [download]:
            data = download.result()
        if data is None:
            found = self._cached(key)
            return self._store.read(key) if found is None else found[0]
        return data

    @contextlib.contextmanager
    def _downloads_of(self, keys: Sequence[str]) -> Iterator[list[Future[memoryview | None]]]:
        """The downloads of blobs, shared by all callers, while this caller waits for them.

        A download that has not begun is given up with its last caller; a running download
        continues, for the next query.
        """
        joined = [self._join(key) for key in keys]
        try:
            yield [download.future for download in joined]
        finally:
            with self._lock:
                for download in joined:
                    download.waiting -= 1
                    if not download.waiting:
                        download.future.cancel()

    def _join(self, key: str) -> _Download:
        with self._lock:
            download = self._downloads.get(key)
            if download is None:
                download = self._downloads[key] = _Download(self._pool.submit(self._bring, key))
                download.future.add_done_callback(lambda _: self._end(key))
            download.waiting += 1
            return download

    def _end(self, key: str) -> None:
        with self._lock:
            self._downloads.pop(key, None)

    def _bring(self, key: str) -> memoryview | None:
        """Cache a blob; return its data if there is no room: others need not stay in memory."""
        if os.path.exists(self._path(key)):  # by another process, or a download that has just ended
            return None
        data = self._store.read(key)
        return None if self._keep(key, data) else data

    def _keep(self, key: str, data: bytes | bytearray | memoryview) -> bool:
        """Cache a blob, and return whether there is room: else it is read each time."""
        path = self._path(key)
        part = f"{path}-{secrets.token_hex(4)}{_PART}"
        try:
            self._make_room(len(data) + _SUM_BYTES)
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            with open(part, "wb") as file:
                file.write(data)
                file.write(_sum(data))
            with fail_points.around("rename"):
                os.rename(part, path)
            return True
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(part)
            return False

    def _forget(self, key: str) -> None:
        with contextlib.suppress(OSError), fail_points.around("unlink"):
            os.unlink(self._path(key))

    def _make_room(self, size: int) -> None:
        """Count a new file, and evict the least recently used where the cache would be too large.

        While one thread evicts, others write on.
        """
        if not self._room.acquire(blocking=False):
            return
        try:
            self._written += size
            limit = self._limit()
            assert self._used is not None
            stale = self._written * _CHECKS_PER_LIMIT >= limit
            if stale or self._used + self._written > limit:
                self._used, self._written = self._evict(limit - size), size
        finally:
            self._room.release()

    def _limit(self) -> int:
        if self._used is None:
            self._used = sum(size for _, size, _ in self._files())
        if self._max_bytes is None:
            free = shutil.disk_usage(self._folder).free
            self._max_bytes = int((free + self._used) * _SHARE_OF_FREE)
        return self._max_bytes

    def _evict(self, limit: int) -> int:
        """Delete the least recently used files beyond a limit; return the bytes that are kept."""
        files = sorted(self._files())
        used = sum(size for _, size, _ in files)
        if used <= limit:
            return used
        for _, size, path in files:
            if used <= limit * _KEPT_SHARE:
                break
            with contextlib.suppress(OSError):
                os.unlink(path)
            used -= size
        return used

    def _files(self) -> Iterator[tuple[float, int, str]]:
        """The time of each file's last use, its bytes, and its path."""
        for folder, _, names in os.walk(self._folder):
            for name in names:
                path = f"{folder}/{name}"
                with contextlib.suppress(OSError):
                    status = os.stat(path)
                    yield status.st_atime, status.st_size, path


def _sum(data: bytes | bytearray | memoryview) -> bytes:
    """The checksum that shows a power loss's damage; the store's own checksum was met before."""
    return zlib.crc32(data).to_bytes(_SUM_BYTES)


def _is_missed(download: Future[memoryview | None]) -> bool:
    """Whether a blob did not come in time, or the store is away."""
    if not download.done():
        return True
    return download.cancelled() or isinstance(download.exception(), Unavailable)


def _boot_time() -> float:
    """The time when this machine started, by the clock of files."""
    return time.time() - time.clock_gettime(_CLOCK)
