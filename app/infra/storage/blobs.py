"""What a store of blobs does, whether it is a folder or a bucket, and how its keys look."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Protocol

from app.infra.errors import Unavailable

__all__ = ["KEY", "LINEAGE", "RIGHTS", "STORE_ID", "BlobStore", "DamagedBlob", "new_keys"]

KEY: Final = re.compile(r"(learngenes/|sketches/)?\d+/[0-9a-f]{2}/[0-9a-f]{32}(\.part)?")
"""What a sweep may remove of a realm; all others belong to other programs."""
LINEAGE: Final = "lineage"
STORE_ID: Final = ".store"
RIGHTS: Final = ("List", "Put", "Get", "Delete")
"""What a bucket has to grant, by the names that S3 gives the operations on objects."""


class DamagedBlob(Unavailable):
    """The store has a blob that is cut, changed, or none of this service's."""


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

    def heads(self, keys: Sequence[str], within: float, /) -> dict[str, bytes]:
        """The heads of blobs, read side by side.

        Args:
            keys: of the blobs.
            within: seconds that it may take.

        Returns:
            Those that came in time; an empty one where there is none.
        """

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
