"""Reports and their policies, as the stores keep them, and what they are made from."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal, TypeAlias

import zstandard

from modelkin.types.reports import ReportSize

__all__ = ["Document", "MadeBy", "Pair", "ReportPolicyRecord", "ReportRecord"]

MadeBy = Literal["request", "policy"]
"""What a report is made for."""
Pair: TypeAlias = tuple[int, int, str, float, float]
"""The ids of a model and of another one, what it is to that, the share and log10 P."""

_LEVEL: Final = 6
_PIECE_BYTES: Final = 1 << 18


@dataclass(frozen=True, slots=True)
class Document:
    """A long text, compressed, which is written and read piece by piece.

    Attributes:
        packed: it, by zstandard.
        size: its bytes before.
    """

    packed: bytes
    size: int

    @classmethod
    def of(cls, pieces: Iterable[bytes]) -> Document:
        """The text of some pieces, which are never held together."""
        packer = zstandard.ZstdCompressor(level=_LEVEL).compressobj()
        packed, size = bytearray(), 0
        for piece in pieces:
            size += len(piece)
            packed += packer.compress(piece)
        return cls(bytes(packed + packer.flush()), size)

    def pieces(self) -> Iterator[bytes]:
        """Its bytes."""
        with self._open() as reader:
            while piece := reader.read(_PIECE_BYTES):
                yield piece

    def lines(self) -> Iterator[bytes]:
        """Its lines, without their ends."""
        with self._open() as reader:
            for line in reader:
                yield line.rstrip(b"\n")

    def _open(self) -> io.BufferedReader:
        unpacked = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(self.packed))
        return io.BufferedReader(unpacked, _PIECE_BYTES)


@dataclass(frozen=True, slots=True)
class ReportRecord:
    """A stored report, without its content.

    Attributes:
        id: that of the job that made it.
        since: the begin of its time; None for one about all models.
        until: the end of its time.
        content_bytes: the bytes of its JSON.
        bill_bytes: the bytes of its bill of materials; 0 without one.
    """

    id: str
    tenant_id: int
    since: datetime | None
    until: datetime
    size: ReportSize
    made_by: MadeBy
    content_bytes: int
    bill_bytes: int


@dataclass(frozen=True, slots=True)
class ReportPolicyRecord:
    """When the reports of a tenant are made by themselves.

    Attributes:
        every_seconds: the time from one to the next.
        keep: how many reports are kept.
        last_at: when the last one was requested; None before the first.
        next_at: when the next one is due.
    """

    tenant_id: int
    every_seconds: int
    keep: int
    last_at: datetime | None
    next_at: datetime
