"""The bytes of an object: a front with a checksum, a head, and the data of a blob.

=====  ===================================================
bytes  what
=====  ===================================================
8      ``MKBLOB1`` and a line feed
4      CRC-32 of the front, with zeros here and for the key, and the head
4      bytes of the head, a multiple of 64
8      bytes of the data
32     SHA-256 of the data
8      the first bytes of the SHA-256 of the key; zeros in objects of 0.2.0 and before
...    the head
...    the data
=====  ===================================================

All integers are little-endian. So the first bytes of an object say what the rest must be, and one
range read gives the head, a support's sketch, without its data. The key shows that the object was
not exchanged with another one. An object that does not name its key has no head: nothing would show
that the head is not another's. 0.2.0 reads objects with a key, whose bytes it ignores.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from dataclasses import dataclass
from typing import Final

__all__ = ["FRONT_BYTES", "DamagedObject", "Front", "checksum", "data_of", "decode_front", "encode"]

_FRONT: Final = struct.Struct("<8sIIQ32s8s")
_MAGIC: Final = b"MKBLOB1\n"
_ALIGNMENT = 64
_NO_KEY = bytes(8)
FRONT_BYTES: Final = _FRONT.size
"""Bytes before the head."""


class DamagedObject(ValueError):
    """An object is cut, changed, or no blob of this service."""


@dataclass(frozen=True, slots=True)
class Front:
    """The content of the first bytes of an object.

    Attributes:
        head_bytes: the bytes of the head, which follows.
        size: the bytes of the data, which follow the head.
        sha256: the SHA-256 of the data.
        bound: whether the object names its key.
    """

    head_bytes: int
    size: int
    sha256: bytes
    bound: bool

    @property
    def start(self) -> int:
        """The place where the data begin."""
        return FRONT_BYTES + self.head_bytes

    @property
    def end(self) -> int:
        """The bytes of the object."""
        return self.start + self.size


def checksum(data: bytes | bytearray | memoryview) -> bytes:
    """The SHA-256 that a front states."""
    return hashlib.sha256(data).digest()


def encode(key: str, data: bytes | bytearray | memoryview, head: bytes = b"") -> bytes:
    """The object of a blob, under its key."""
    padded, sha256 = head + bytes(-len(head) % _ALIGNMENT), checksum(data)
    crc = zlib.crc32(padded, zlib.crc32(_front(0, len(padded), len(data), sha256)))
    return b"".join((_front(crc, len(padded), len(data), sha256, _bytes_of(key)), padded, data))


def decode_front(key: str, buffer: bytes | memoryview, *, total: int) -> tuple[Front, bytes | None]:
    """Return the front of an object, and its head as far as the buffer has it whole.

    The head is empty in an object that does not name its key.

    Args:
        key: the key that the object was read by.
        buffer: the first bytes of the object.
        total: the bytes of the object.

    Raises:
        DamagedObject: the bytes are not the front of an object of ``total`` bytes and this key.
    """
    view = memoryview(buffer)
    if view.nbytes < FRONT_BYTES:
        raise DamagedObject(f"it has {view.nbytes} bytes")
    magic, crc, head_bytes, size, sha256, named = _FRONT.unpack_from(view)
    front = Front(head_bytes, size, sha256, bound=named != _NO_KEY)
    if magic != _MAGIC or front.end != total:
        raise DamagedObject(f"its first bytes are not those of a blob of {total} bytes")
    if front.bound and named != _bytes_of(key):
        raise DamagedObject("it is the blob of another key")
    if view.nbytes < front.start:
        return front, None
    head = bytes(view[FRONT_BYTES : front.start])
    if crc != zlib.crc32(head, zlib.crc32(_front(0, head_bytes, size, sha256))):
        raise DamagedObject("its first bytes are damaged")
    return front, head if front.bound else b""


def data_of(key: str, object_: memoryview) -> memoryview:
    """Return the data of a whole object.

    Raises:
        DamagedObject: the object is cut, changed, no blob, or that of another key.
    """
    front, _ = decode_front(key, object_, total=object_.nbytes)
    data = object_[front.start :]
    if checksum(data) != front.sha256:
        raise DamagedObject("its data have another SHA-256 than its first bytes say")
    return data


def _front(crc: int, head_bytes: int, size: int, sha256: bytes, named: bytes = _NO_KEY) -> bytes:
    return _FRONT.pack(_MAGIC, crc, head_bytes, size, sha256, named)


def _bytes_of(key: str) -> bytes:
    return hashlib.sha256(key.encode("ascii")).digest()[: len(_NO_KEY)]
