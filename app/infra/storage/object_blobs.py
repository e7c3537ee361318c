"""Blobs in an object store: S3, Google Cloud Storage, Azure, or a store with such an API.

An object is created once, whole, with a checksum, and never changed. A request whose answer was
lost is made again: if its key is taken by the same blob, that is success. *There is none* is a
``KeyError``; any other answer of a store, or none, is :class:`Unavailable`, and never taken for a
lost blob. This module keeps nothing on this machine.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from typing import Final, TypeVar

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import ObjectStore

from app.infra import fail_points
from app.infra.errors import Unavailable
from app.infra.storage.blob_objects import (
    FRONT_BYTES,
    DamagedObject,
    Front,
    checksum,
    data_of,
    decode_front,
    encode,
)
from app.infra.storage.blobs import KEY, LINEAGE, STORE_ID, DamagedBlob, Decode, new_keys
from app.infra.storage.circuit_breaker import CircuitBreaker
from app.infra.storage.object_store import (
    MAX_ATTEMPTS,
    RETRY_S,
    first_line,
    is_beyond_end,
    is_without_bucket,
)

__all__ = [
    "LARGE_BYTES",
    "MANY_RANGES_BYTES",
    "MAX_LARGE_READS",
    "MULTIPART_BYTES",
    "PART_BYTES",
    "RANGE_BYTES",
    "ObjectBlobs",
]

T = TypeVar("T")
log = logging.getLogger(__name__)

MULTIPART_BYTES: Final = 64 << 20
"""An object is sent in parts from this size on."""
PART_BYTES: Final = 16 << 20
MANY_RANGES_BYTES: Final = 32 << 20
"""An object is read by several requests at a time from this size on."""
MAX_LARGE_READS: Final = 4
"""Large reads at a time: they are in memory, twice."""
RANGE_BYTES: Final = 8 << 20
_MAX_PUTS: Final = 16
_HEAD_BYTES: Final = 8 << 10
"""Bytes of a head that one request reads: a whole sketch."""
_BATCH_SIZE: Final = 1000
"""Keys that a store lists or deletes in one request."""
_CLOCK: Final = ".clock"
LARGE_BYTES: Final = 2 << 20
"""An object whose request may be silent for longer, from this size on: it takes long to send. 16
smaller ones at a time need no faster a network than the parts of a larger one.
"""
_PAUSE_S: Final = 2.0
"""Seconds without requests once the store has failed."""


class ObjectBlobs:
    """A :class:`app.infra.storage.blobs.BlobStore` in an object store.

    Args:
        store: the store of the bucket and its prefix.
        realm: the token of one database, which all keys begin with.
        patient: the same store, for long requests; the store itself by default.
        pause: the seconds without requests once the store has failed.
    """

    keeps_heads = True

    def __init__(
        self,
        store: ObjectStore,
        realm: str,
        patient: ObjectStore | None = None,
        *,
        pause: float = _PAUSE_S,
    ) -> None:
        self._store = store
        self._patient = store if patient is None else patient
        self._realm = realm
        self._breaker = CircuitBreaker(pause)
        self._large = threading.BoundedSemaphore(MAX_LARGE_READS)

    def prepare(self) -> None:
        """List the store, which takes a right that reads and writes do not.

        Raises:
            Unavailable: the store does not answer, refuses the listing, or has no such bucket.
        """
        next(self._pages(f"{self._realm}/"), None)

    def put(self, prefix: str, data: bytes | bytearray, head: bytes = b"") -> str:
        return self.put_many(prefix, [data], [head])[0]

    def put_many(
        self,
        prefix: str,
        contents: Sequence[bytes | bytearray],
        heads: Sequence[bytes] = (),
    ) -> list[str]:
        keys = new_keys(self._realm, prefix, len(contents))
        heads = heads or [b""] * len(contents)
        if len(keys) == 1:
            self.write(keys[0], contents[0], heads[0])
        elif keys:
            with ThreadPoolExecutor(min(len(keys), _MAX_PUTS)) as writers:
                try:
                    list(writers.map(self.write, keys, contents, heads))
                except BaseException:
                    writers.shutdown(cancel_futures=True)
                    for key in keys:
                        self.delete(key)
                    raise
        return keys

    def write(self, key: str, data: bytes | bytearray | memoryview, head: bytes = b"") -> None:
        """Store a blob under a key that no other has had."""
        object_ = encode(key, data, head)

        def create() -> None:
            with fail_points.around("put"):
                self._create(key, object_, data)

        self._ask("a support could not be written", create)

    def open(self, key: str) -> memoryview:
        return self.read(key)

    def open_verified(self, key: str, decode: Decode[T], *, mapped: bool = False) -> T:  # noqa: ARG002
        return decode(self.read(key), verified=False)

    def read(self, key: str) -> memoryview:
        return self._ask(
            f"the support {key} could not be read", lambda: data_of(key, self._whole(key))
        )

    def head(self, key: str) -> bytes | None:
        return self._ask(f"the support {key} could not be read", lambda: self._front(key)[1])

    def heads(self, keys: Sequence[str], within: float, /) -> dict[str, bytes]:
        """Read the heads one after the other; a cache above asks for several at a time."""
        end, found = time.monotonic() + within, dict[str, bytes]()
        for key in keys:
            if time.monotonic() >= end:
                break
            try:
                found[key] = self.head(key) or b""
            except (KeyError, DamagedBlob):
                found[key] = b""
            except Unavailable as error:
                log.debug("no head of %s: %s", key, error)
        return found

    def size(self, key: str) -> int | None:
        with suppress(KeyError):
            return self._known_front(key).size
        return None

    def holds(self, key: str, data: bytes | bytearray) -> bool:
        try:
            if self._known_front(key).sha256 != checksum(data):
                return False
            return self.read(key) == memoryview(data)  # what follows the front may be damaged
        except (KeyError, DamagedBlob):
            return False

    def fetch(self, _keys: Iterable[str], _within: float, /) -> set[str]:
        return set()

    def delete(self, key: str) -> None:
        with suppress(Unavailable):
            self.delete_many([key])

    def delete_many(self, keys: Sequence[str]) -> None:
        for at in range(0, len(keys), _BATCH_SIZE):
            some = list(keys[at : at + _BATCH_SIZE])
            self._ask("supports could not be deleted", lambda some=some: self._delete(some))  # type: ignore[misc]

    def delete_folder(self, key: str) -> None:
        for found in self._pages(key):
            self.delete_many([path for path, _ in found])

    def keys(self, *, older_than: float = 0.0) -> Iterator[str]:
        horizon = self.now() - timedelta(seconds=older_than)
        for found in self._pages(f"{self._realm}/"):
            for path, modified in found:
                if modified <= horizon and KEY.fullmatch(path.removeprefix(f"{self._realm}/")):
                    yield path

    def lineage(self) -> str | None:
        return self._text(LINEAGE)

    def set_lineage(self, lineage: str) -> None:
        self._set_text(LINEAGE, lineage)

    def store_id(self) -> str | None:
        return self._text(STORE_ID)

    def claim_store_id(self, drawn: str) -> str:
        def claim() -> None:
            with suppress(AlreadyExistsError):
                obstore.put(self._store, f"{self._realm}/{STORE_ID}", drawn.encode(), mode="create")

        self._ask("the id of the object store could not be written", claim)
        return self.store_id() or drawn

    def now(self) -> datetime:
        """The store's own time: no clock of a machine decides how old an object is."""
        key = f"{self._realm}/{_CLOCK}"

        def ask() -> datetime:
            obstore.put(self._store, key, secrets.token_bytes(8))
            return obstore.head(self._store, key)["last_modified"]

        return self._ask("the object store did not say its time", ask)

    def close(self) -> None:
        """Nothing is open."""

    def _create(self, key: str, object_: bytes, data: bytes | bytearray | memoryview) -> None:
        if len(object_) >= MULTIPART_BYTES:  # which knows no condition; the key is our own
            obstore.put(self._patient, key, object_, use_multipart=True, chunk_size=PART_BYTES)
            return
        store = self._patient if len(object_) >= LARGE_BYTES else self._store
        try:
            obstore.put(store, key, object_, mode="create", use_multipart=False)
        except AlreadyExistsError as taken:
            try:
                found = self._front(key)[0]
            except KeyError:  # deleted meanwhile: the next attempt may have the key
                raise taken from None
            if found.sha256 != checksum(data):
                raise

    def _whole(self, key: str) -> memoryview:
        with _lookup(key):
            found = obstore.get(self._store, key)
            size = found.meta["size"]
            if size < MANY_RANGES_BYTES:
                return memoryview(found.bytes())
            starts = range(0, size, RANGE_BYTES)
            ends = [min(start + RANGE_BYTES, size) for start in starts]
            with self._large:
                parts = obstore.get_ranges(
                    self._store, key, starts=list(starts), ends=ends, coalesce=0
                )
                return memoryview(b"".join(memoryview(part) for part in parts))

    def _front(self, key: str) -> tuple[Front, bytes | None]:
        with _lookup(key):
            try:
                found = obstore.get(
                    self._store, key, options={"range": (0, FRONT_BYTES + _HEAD_BYTES)}
                )
            except BaseError as error:
                if is_beyond_end(error):
                    raise DamagedObject("it has 0 bytes") from error
                raise
        return decode_front(key, memoryview(found.bytes()), total=found.meta["size"])

    def _known_front(self, key: str) -> Front:
        return self._ask(f"the support {key} could not be read", lambda: self._front(key)[0])

    def _delete(self, keys: Sequence[str]) -> None:
        try:
            with _lookup(keys[0]):
                obstore.delete(self._patient if len(keys) > 1 else self._store, keys)
        except KeyError:  # some stores say so of a blob that is gone, and stop there
            for key in keys:
                with suppress(KeyError), _lookup(key):
                    obstore.delete(self._store, key)

    def _pages(self, prefix: str) -> Iterator[list[tuple[str, datetime]]]:
        """Key and time of all objects under a prefix, a page at a time, by key."""
        after: str | None = None
        while True:
            page = self._ask(
                "the object store could not be listed",
                lambda after=after: self._page(prefix, after),  # type: ignore[misc]
            )
            if not page:
                return
            yield page
            after = page[-1][0]

    def _page(self, prefix: str, after: str | None) -> list[tuple[str, datetime]]:
        stream = obstore.list(self._store, prefix, offset=after, chunk_size=_BATCH_SIZE)
        found = next(iter(stream), [])
        return [(each["path"], each["last_modified"]) for each in found]

    def _text(self, name: str) -> str | None:
        key = f"{self._realm}/{name}"

        def read() -> str:
            with _lookup(key):
                return bytes(obstore.get(self._store, key).bytes()).decode("ascii")

        try:
            return self._ask("the object store could not be read", read)
        except KeyError:
            return None

    def _set_text(self, name: str, text: str) -> None:
        def write() -> None:
            with fail_points.around("put"):
                obstore.put(self._store, f"{self._realm}/{name}", text.encode("ascii"))

        self._ask("the object store could not be written", write)

    def _ask(self, failure: str, request: Callable[[], T]) -> T:
        """Return the result of a request, which is made again if that may help.

        Raises:
            KeyError: the store has no such object.
            Unavailable: the store failed again and again, or did so a moment ago.
        """
        if not self._breaker.allows():
            raise Unavailable(f"{failure}: the object store does not answer")
        end = time.monotonic() + RETRY_S
        for attempt in range(1, MAX_ATTEMPTS + 1):
            try:
                result = request()
            except KeyError:
                self._breaker.succeeded()
                raise
            except (BaseError, DamagedObject, OSError) as error:
                if attempt < MAX_ATTEMPTS and time.monotonic() < end:
                    continue
                raise self._to_unavailable(failure, error) from error
            self._breaker.succeeded()
            return result
        raise AssertionError("the last attempt returns or raises")

    def _to_unavailable(self, failure: str, error: Exception) -> Unavailable:
        """The error of the service for a failed request; the circuit breaker counts the failure."""
        if isinstance(error, DamagedObject):
            self._breaker.succeeded()
            return DamagedBlob(f"{failure}: {error}")
        self._breaker.failed()
        if is_without_bucket(error):
            return Unavailable(f"{failure}: there is no such bucket", reason=first_line(error))
        return Unavailable(f"{failure}: the object store failed", reason=first_line(error))


@contextmanager
def _lookup(key: str) -> Iterator[None]:
    """A request for an object: that there is none is a ``KeyError``; no bucket is a failure."""
    try:
        yield
    except FileNotFoundError as error:
        if is_without_bucket(error):
            raise
        raise KeyError(key) from error
