"""The interface of a store of blobs, a folder or a bucket, and the form of its keys."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Protocol, TypeVar

from app.infra.errors import Unavailable

__all__ = [
    "KEY",
    "LINEAGE",
    "RIGHTS",
    "STORE_ID",
    "BlobStore",
    "DamagedBlob",
    "Decode",
    "new_keys",
]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

KEY: Final = re.compile(r"(learngenes/|sketches/)?\d+/[0-9a-f]{2}/[0-9a-f]{32}(\.part)?")
"""Keys that a sweep may remove from a realm; all other keys belong to other programs."""
LINEAGE: Final = "lineage"
STORE_ID: Final = ".store"
RIGHTS: Final = ("List", "Put", "Get", "Delete")
"""The rights that a bucket has to grant, by S3's names of the operations on objects."""


class DamagedBlob(Unavailable):
    """The store has a blob that is cut, changed, or not of this service."""


class Decode(Protocol[T_co]):
    """A function that decodes a blob, and requires the content that its row names."""

    def __call__(self, data: memoryview, /, *, verified: bool) -> T_co:
        """Decode the bytes of a blob.

        Args:
            data: the bytes.
            verified: whether they were compared with the row before, and their file is unchanged.

        Raises:
            DamagedBlob: they are not those that the row names.
        """


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
        """Store several blobs, side by side, all or none; then they survive a power loss.

        Args:
            prefix: the beginning of their keys.
            contents: the data of the blobs.
            heads: at most 8 KiB for each blob, which a remote store can read without its data.
        """

    def write(self, key: str, data: bytes | bytearray | memoryview, head: bytes = b"") -> None:
        """Store a blob under a key that no other has had: that of a backup."""

    def open(self, key: str) -> memoryview:
        """Return the bytes in memory; ``KeyError`` if there is no such blob."""

    def open_verified(self, key: str, decode: Decode[T], *, mapped: bool = False) -> T:
        """Open a blob as the content that its row names.

        A copy of this machine that is damaged is replaced by the store's own.

        Args:
            key: the key of the blob.
            decode: the function that decodes it.
            mapped: whether its bytes may be a guarded map of a file, and take no memory. Then the
                caller uses them within :func:`app.infra.storage.guarded_maps.intact_maps`.

        Raises:
            KeyError: there is no such blob.
            DamagedBlob: the blob is cut, changed, or that of another key.
        """

    def read(self, key: str) -> memoryview:
        """Return the bytes in memory, from the store itself; ``KeyError`` without such a blob."""

    def head(self, key: str, /) -> bytes | None:
        """The head of a blob; None where the store keeps none, or ``KeyError``."""

    def heads(self, keys: Sequence[str], within: float, /) -> dict[str, bytes]:
        """Read the heads of blobs, side by side.

        Args:
            within: the seconds that this may take.

        Returns:
            The heads that came in time; an empty head for a blob without one.
        """

    def size(self, key: str) -> int | None:
        """The bytes of the blob; None if there is no blob of this key."""

    def holds(self, key: str, data: bytes | bytearray) -> bool:
        """Whether the blob exists and has the bytes ``data``.

        Raises:
            Unavailable: the store cannot answer now.
        """

    def fetch(self, keys: Iterable[str], within: float, /) -> set[str]:
        """Bring blobs to this machine, side by side, so that :meth:`open` is fast.

        Args:
            within: the seconds that this may take.

        Returns:
            The keys of the blobs that did not come in time.
        """

    def delete(self, key: str) -> None:
        """Delete a blob, if it exists and the store is there; a sweep finds blobs that are left."""

    def delete_many(self, keys: Sequence[str]) -> None:
        """Delete blobs, as far as they exist; raises ``Unavailable`` where some may be left."""

    def delete_folder(self, key: str) -> None:
        """Delete all blobs whose keys begin with ``key``, which ends with a slash."""

    def keys(self, *, older_than: float = 0.0) -> Iterator[str]:
        """The keys of all blobs older than some seconds, with unfinished ones."""

    def lineage(self) -> str | None:
        """The lineage that :meth:`set_lineage` wrote last; None where it is lost."""

    def set_lineage(self, lineage: str) -> None:
        """Note the lineage of the database that has swept the blobs, beside them."""

    def store_id(self) -> str | None:
        """The id of this store; None where no start has claimed one."""

    def claim_store_id(self, drawn: str) -> str:
        """Give the store an id if it has none; return its id."""

    def close(self) -> None:
        """Release all open resources."""


def new_keys(realm: str, prefix: str, count: int) -> list[str]:
    """New keys that no blob has had, all in one folder, which is synced once for all of them."""
    part = secrets.token_hex(1)
    return [f"{realm}/{prefix}/{part}/{part}{secrets.token_hex(15)}" for _ in range(count)]
