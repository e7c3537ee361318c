"""Bounds of answers, by what was asked: no answer takes more memory than its question allows.

Bytes are counted as they arrive. No answer may be compressed, so what arrives is what is kept.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from modelkin.client._transport.messages import Request
from modelkin.core.codecs import subspace, support
from modelkin.core.sketching.schemes import MAX_NUM_PERM
from modelkin.core.sketching.sketch import MAX_SIZE
from modelkin.errors import ModelkinError, PayloadTooLarge
from modelkin.wire import CELL, JSON, SIGNATURE, SKETCH, SUBSPACE, SUPPORT
from modelkin.wire.cell import MAX_CELL_BYTES

__all__ = ["MAX_JSON_BYTES", "MAX_REFUSAL_BYTES", "AnswerBody"]

MAX_JSON_BYTES: Final = 256 << 20
MAX_REFUSAL_BYTES: Final = 1 << 20
"""The most bytes of an answer that is an error."""

_IDENTITY: Final = {"", "identity"}
_FRAME_BYTES: Final = 64
"""The bytes of a signature's or a sketch's header and checksum, and some."""

_BY_TYPE: Final[Mapping[str, int]] = {
    JSON: MAX_JSON_BYTES,
    SIGNATURE: 8 * MAX_NUM_PERM + _FRAME_BYTES,
    SKETCH: MAX_SIZE // 8 + _FRAME_BYTES,
    CELL: MAX_CELL_BYTES,
}
"""The most bytes of an answer of a media type; of others the client's own bound is the only one."""


@dataclass(frozen=True, slots=True)
class _Header:
    """The beginning of a format that declares how long it can be."""

    length: int
    declared: Callable[[bytes], int]


_HEADERS: Final[Mapping[str, _Header]] = {
    SUPPORT: _Header(support.HEADER_BYTES, support.declared_size),
    SUBSPACE: _Header(subspace.HEADER_BYTES, subspace.declared_size),
}


class AnswerBody:
    """The body of an answer, which is read piece by piece.

    Args:
        request: the request, with the media type that it asks for and perhaps a bound of its own.
        url: the service's address, for messages.
        status: the status of the answer.
        headers: the headers of the answer, by lower-case name.
        most: the client's own bound.

    Raises:
        ModelkinError: the answer is compressed.
        PayloadTooLarge: the answer declares more bytes than it may have.
    """

    def __init__(
        self, request: Request, url: str, status: int, headers: Mapping[str, str], most: int
    ) -> None:
        self._what = f"{request.method} {request.path} at {url}"
        self._refuse_coding(headers.get("content-encoding", ""), status)
        asked = request.headers.get("Accept", JSON)
        self._data = io.BytesIO()
        self._size = 0
        self._header = _HEADERS.get(asked)
        self._most, self._why = min(_BY_TYPE.get(asked, most), most), "for what was asked"
        if request.most is not None:
            self._most = min(self._most, request.most)
        if not 200 <= status < 300:
            self._header = None
            self._most, self._why = min(self._most, MAX_REFUSAL_BYTES), f"beside a status {status}"
        declared = headers.get("content-length", "")
        if declared.isdecimal() and len(declared) < 20:
            self._require(int(declared))

    def add(self, piece: bytes) -> None:
        """Take the next bytes.

        Raises:
            PayloadTooLarge: these are more than the answer may have.
        """
        self._size += len(piece)
        self._require(self._size)
        self._data.write(piece)
        if self._header is not None and self._size >= self._header.length:
            declared = self._header.declared(self._data.getvalue()[: self._header.length])
            self._header = None
            if declared < self._most:
                self._most, self._why = declared, "by its own header"
            self._require(self._size)

    @property
    def content(self) -> bytes:
        """The whole body."""
        return self._data.getvalue()

    def _require(self, size: int) -> None:
        if size > self._most:
            raise PayloadTooLarge(
                f"the answer to {self._what} is longer than the {self._most:,} bytes that it may "
                f"have {self._why}: the rest was not read. Ask for less at a time, or for a larger "
                f"support give the client max_answer_bytes"
            )

    def _refuse_coding(self, coding: str, status: int) -> None:
        if coding.strip().lower() not in _IDENTITY:
            raise ModelkinError(
                f"the answer to {self._what} is compressed ({coding[:40]!a}, status {status}), "
                f"which was not asked for: let the proxy before the service leave answers as they "
                f"are"
            )
