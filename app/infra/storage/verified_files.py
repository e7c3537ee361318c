"""Verified files: which bytes of this machine were compared with their rows, once a process.

A digest of a support takes longer than reading it, and most supports are read again and again. So a
process notes the state of each file that it has verified: its inode, its size, and the time of its
last change. A file that was exchanged, cut or written since is in another state, and is verified
again. The time is the inode's, too, which no program can set: a copy in place that keeps the time
of the content (``rsync --inplace --times``, ``cp -p``) changes it as well.
"""

from __future__ import annotations

import hashlib
import os
import time
from dataclasses import dataclass
from typing import Final, TypeVar

from app.infra.storage.blobs import DamagedBlob, Decode

__all__ = ["FileDecoder", "VerifiedFiles"]

T = TypeVar("T")

_PLACES: Final = 1 << 17
"""Files that are noted at most, some 100 bytes each; two that meet in a place take turns."""
_SETTLED_NS: Final = 2_000_000_000
"""The age of a change from which on another change has another time: FAT counts in two seconds."""


@dataclass(frozen=True, slots=True)
class FileDecoder:
    """Decodes a file whose row has its SHA-256: to its bytes."""

    sha256: bytes

    def __call__(self, data: memoryview, /, *, verified: bool) -> memoryview:
        """Return the bytes; raises :class:`DamagedBlob` if they have another SHA-256."""
        if not verified and hashlib.sha256(data).digest() != self.sha256:
            raise DamagedBlob("it has another SHA-256 than its row")
        return data


class VerifiedFiles:
    """Notes of a process about the files that it has verified."""

    def __init__(self) -> None:
        self._marks: dict[int, int] = {}

    def decode(self, key: str, status: os.stat_result, data: memoryview, decode: Decode[T]) -> T:
        """Decode the bytes of a file, and note that they are verified then.

        Args:
            key: the key of the blob.
            status: the state of the file before its bytes were read.
            data: its bytes.
            decode: the function that verifies them, unless they were verified in this state.

        Raises:
            DamagedBlob: they are not those that the row names.
        """
        changed = max(status.st_mtime_ns, status.st_ctime_ns)
        mark = hash((key, status.st_ino, status.st_size, changed))
        place = hash(key) % _PLACES
        verified = self._marks.get(place) == mark
        made = decode(data, verified=verified)
        if not verified and changed < time.time_ns() - _SETTLED_NS:
            self._marks[place] = mark
        return made
