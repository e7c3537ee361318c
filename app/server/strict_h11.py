"""h11 without its leniences: what it has read must stand in the bytes as RFC 9112 writes it.

h11 takes a line feed alone for the end of a line, joins lines that go on, and skips all bytes of a
chunk's extension. A proxy in front may take the same bytes for other lines, and so for other
requests.
"""

from __future__ import annotations

import re
from typing import Final

import h11

__all__ = ["MAX_HEAD_BYTES", "StrictConnection"]

MAX_HEAD_BYTES: Final = 64 << 10
"""The most bytes of a head, of a line of a chunk's size, and of the fields behind a body."""

_LINE: Final = rb"(?:[^\x00-\x08\n-\x1f\x7f]++\r\n)"
"""A line of text without control characters, but tabs."""
_FIELDS: Final = rb"(?:(?![ \t])" + _LINE + rb")*+\r\n"
_HEAD: Final = re.compile(_LINE + _FIELDS)
_SIZE: Final = re.compile(rb"(?:\r\n)?" + _LINE)
"""The end of the chunk before, if there is one, and the line of a size."""
_LAST: Final = re.compile(_SIZE.pattern + _FIELDS)


class StrictConnection(h11.Connection):
    """The server's side of a connection, which refuses lines that two readers could split apart.

    It keeps the bytes that no event was made of, and compares each event with those at their front.
    """

    def __init__(self) -> None:
        super().__init__(h11.SERVER, MAX_HEAD_BYTES)
        self._unread = bytearray()
        self._in_chunks = self._is_new_chunk = False

    def receive_data(self, data: bytes) -> None:
        """Take bytes that have arrived."""
        super().receive_data(data)
        self._unread += data

    def next_event(self) -> h11.Event | type[h11.NEED_DATA | h11.PAUSED]:
        """Return what has been read.

        Raises:
            h11.RemoteProtocolError: the bytes are no HTTP, or could be read in two ways.
        """
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._in_chunks = any(name == b"transfer-encoding" for name, _ in event.headers)
            self._is_new_chunk = self._in_chunks
            self._pass(_HEAD)
        elif isinstance(event, h11.Data):
            if self._is_new_chunk:
                self._pass(_SIZE)
            # Its `chunk_start` gets lost where the line of a size arrives without data.
            self._is_new_chunk = event.chunk_end
            del self._unread[: len(event.data)]
        elif isinstance(event, h11.EndOfMessage) and self._in_chunks:
            self._pass(_LAST)
        return event

    def _pass(self, lines: re.Pattern[bytes]) -> None:
        found = lines.match(self._unread)
        if found is None or found.end() > MAX_HEAD_BYTES:  # h11 limits what is not whole alone
            raise h11.RemoteProtocolError(
                "lines that are too long, or that other readers split elsewhere"
            )
        del self._unread[: found.end()]
