"""The native format of a cell, ``application/vnd.modelkin.cell``: one piece of one shard.

The header is in the clear, so that a carrier can check a cell; the values are sealed. This module
owns the header, the lengths and the checksum: ``modelkin.federation.sharing`` seals and opens.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from modelkin.core.codecs.checks import (
    CRC_SIZE,
    VERSION,
    Payload,
    check_crc,
    check_prefix,
    with_crc,
)
from modelkin.errors import InvalidCell, PayloadTooLarge

__all__ = [
    "BUCKET",
    "MAX_CELL_BYTES",
    "CellHeader",
    "Kind",
    "Sealing",
    "cell_bytes",
    "decode_cell",
    "encode_cell",
    "num_buckets",
    "read_cell_header",
]

_HEADER: Final = struct.Struct("<4sBBBBIIIHHIIQ32s")
_MAGIC: Final = b"MKSC"

BUCKET: Final = 512
"""Rounded values that share a scale."""

MAX_CELL_BYTES: Final = 64 * 2**20
"""No cell is larger: a piece has 2^22 values at most."""


class Kind(IntEnum):
    """The kind of the values: numbers, rounded numbers with their scales, or masked fixed point."""

    FLOAT32 = 0
    INT8 = 1
    UINT32 = 2


class Sealing(IntEnum):
    """The readers of the values: all, one party, or the parties for whom the key is wrapped."""

    CLEAR = 0
    SEALED = 1
    WRAPPED = 2


SEALED_BYTES: Final = 48
"""The bytes that HPKE adds: a public key of 32 and a tag of 16."""

WRAP_BYTES: Final = 64
"""The bytes of a key of 16 that is sealed to one party."""

TAG_BYTES: Final = 16
"""The tag of what is encrypted with a wrapped key."""


def num_buckets(count: int) -> int:
    """The number of scales of ``count`` rounded values."""
    return -(-count // BUCKET)


@dataclass(frozen=True, slots=True)
class CellHeader:
    """The header of a cell: which values it has, and of which round.

    Attributes:
        kind: what the values are.
        sealing: who can read them.
        shard: 0 to A - 1.
        piece: which stretch of the shard.
        round: 1 to 2^32 - 1.
        attempt: 0, or 1 without the members that the first attempt lost.
        wraps: for how many parties the key is wrapped; 0 unless the sealing says so.
        place: the sender's number in the roster, from 0.
        count: how many values there are.
        digest: the digest of the roster, 32 bytes.
    """

    kind: Kind
    sealing: Sealing
    shard: int
    piece: int
    round: int
    attempt: int
    wraps: int
    place: int
    count: int
    digest: bytes

    @property
    def value_bytes(self) -> int:
        """Bytes of the values alone."""
        if self.kind is Kind.INT8:
            return self.count + 4 * num_buckets(self.count)
        return 4 * self.count

    @property
    def payload_bytes(self) -> int:
        """Bytes between the header and the checksum."""
        added = {
            Sealing.CLEAR: 0,
            Sealing.SEALED: SEALED_BYTES,
            Sealing.WRAPPED: WRAP_BYTES * self.wraps + TAG_BYTES,
        }
        return self.value_bytes + added[self.sealing]

    def pack(self) -> bytes:
        """The bytes of the header, which what is sealed is bound to."""
        return _HEADER.pack(
            _MAGIC, VERSION, self.kind, self.sealing, 0, self.shard, self.piece, self.round,
            self.attempt, self.wraps, self.place, 0, self.count, self.digest,
        )  # fmt: skip


def cell_bytes(header: CellHeader) -> int:
    """The length of a cell of this header, in bytes."""
    return _HEADER.size + header.payload_bytes + CRC_SIZE


def encode_cell(header: CellHeader, payload: Payload) -> bytes:
    """Encode a cell: 72 bytes of header, the payload, and a CRC-32 of all of it.

    Raises:
        InvalidCell: the payload is not as long as the header says.
    """
    if len(payload) != header.payload_bytes:
        message = f"the header says {header.payload_bytes} bytes of payload, there are"
        raise InvalidCell(f"{message} {len(payload)}")
    return with_crc(header.pack(), payload)


def read_cell_header(data: Payload) -> CellHeader:
    """Read the header of a cell, or of its first 72 bytes; what follows is not read.

    Raises:
        InvalidCell: not this format, another version, or fields that no cell has.
    """
    if len(data) < _HEADER.size:
        message = f"the payload ends after {len(data)} bytes, a cell's header takes {_HEADER.size}"
        raise InvalidCell(message)
    magic, version, kind, sealing, flags, *rest = _HEADER.unpack_from(data)
    check_prefix(magic, _MAGIC, version, InvalidCell)
    shard, piece, round_number, attempt, wraps, place, more, count, digest = rest
    if kind not in set(Kind) or sealing not in set(Sealing) or flags or more:
        raise InvalidCell(
            f"kind {kind} (byte 5), sealing {sealing} (byte 6) or flags {flags:#04x} (byte 7), "
            f"{more:#010x} (bytes 28-31) are unknown: version 1 has kinds 0 to 2, sealings 0 to 2 "
            f"and no flags"
        )
    if (sealing == Sealing.WRAPPED) != (wraps > 0):
        message = f"{wraps} wrapped keys (bytes 22-23) do not go with sealing {sealing} (byte 6)"
        raise InvalidCell(message)
    header = CellHeader(
        Kind(kind), Sealing(sealing), shard, piece, round_number, attempt, wraps, place, count,
        digest,
    )  # fmt: skip
    if not round_number:
        raise InvalidCell("the round (bytes 16-19) is 1 or more")
    if cell_bytes(header) > MAX_CELL_BYTES:
        raise PayloadTooLarge(f"{count} values make a cell of more than {MAX_CELL_BYTES} bytes")
    return header


def decode_cell(data: Payload) -> tuple[CellHeader, memoryview]:
    """Decode a cell: its header and its payload, which is a view of the data.

    Raises:
        InvalidCell: not this format, another version, truncated, damaged, or followed by other
            bytes.
        PayloadTooLarge: longer than any cell.
    """
    header = read_cell_header(data)
    if len(data) != cell_bytes(header):
        message = f"the header makes a cell of {cell_bytes(header)} bytes, this one has {len(data)}"
        raise InvalidCell(message)
    check_crc(data, InvalidCell)
    return header, memoryview(data)[_HEADER.size : -CRC_SIZE]
