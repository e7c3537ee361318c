"""``Download``: a hub's file on its way to the disk, counted and digested as it arrives.

Declared sizes and digests are verified, never trusted. Nothing is unpacked.
"""

from __future__ import annotations

import errno
import hashlib
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import BinaryIO, Final

import httpx

from app.hubs.clients.protocol import HubFile, RangesIgnored, Received
from app.infra.errors import HubProtocolError, HubUnavailable, StorageFull, Unavailable
from modelkin.errors import PayloadTooLarge

__all__ = ["Download", "pieces_of_range", "writing"]

_CONTENT_RANGE: Final = re.compile(r"bytes ([0-9]{1,19})-([0-9]{1,19})/(\*|[0-9]{1,19})")
_NO_ROOM: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class Download:
    """The received part of a file, over one or more responses.

    Args:
        file: the file as the hub declared it.
        max_bytes: the largest size that is accepted.
        host: the hub's host, for messages.
        received: the bytes received before, see :meth:`app.hubs.clients.protocol.Hub.download`.
        require_time: a function that is called again and again; an error that it raises ends the
            download.
    """

    def __init__(
        self,
        file: HubFile,
        max_bytes: int,
        host: str,
        received: Received | None,
        require_time: Callable[[], None],
    ) -> None:
        self.size = 0
        self._file = file
        self._max_bytes = max_bytes
        self._host = host
        self._require_time = require_time
        self._received = received
        self._sha256 = hashlib.sha256()
        self._declared = file.size
        self._version: str | None = None

    @property
    def asked(self) -> dict[bytes, bytes]:
        """The headers that ask for what is missing, of the file that was begun.

        Where no digest tells that the file is another one by now, the hub sends it whole then.
        """
        if not self.size:
            return {}
        headers = {b"Range": f"bytes={self.size}-".encode()}
        if self._file.sha256 is None and self._version is not None:
            headers[b"If-Range"] = self._version.encode("utf-8", "surrogatepass")
        return headers

    def take(self, response: httpx.Response, target: BinaryIO) -> None:
        """Append the body of a response; start over where it holds the whole file again."""
        if response.status_code != 206:
            self.size, self._sha256 = 0, hashlib.sha256()
            target.seek(0)
            target.truncate()
        elif not self._continues(response):
            raise HubProtocolError(
                f"{self._host} sends another part of {self._file.path} than asked for"
            )
        version = response.headers.get("ETag", "")
        self._version = version if version.startswith('"') else None  # weak ones compare to none
        coming = response.headers.get("Content-Length", "")
        if self._declared is None and coming.isdecimal():
            self._declared = self.size + int(coming)
        elif coming.isdecimal():
            self._require_no_more(self.size + int(coming))
        for piece in response.iter_raw():
            self._require_no_more(self.size + len(piece))
            target.write(piece)
            self._sha256.update(piece)
            self.size += len(piece)
            self._require_time()
            if self._received is not None:
                self._received(self.size)
        target.flush()
        if self._declared is not None and self.size < self._declared:
            raise HubUnavailable(
                f"{self._host} declares {self._declared} bytes of {self._file.path} and sends "
                f"{self.size}"
            )

    def finish(self) -> int:
        """The size of the file.

        Raises:
            HubProtocolError: the bytes do not have the declared digest.
        """
        if self._file.sha256 not in {None, self._sha256.hexdigest()}:
            raise HubProtocolError(
                f"{self._host} declares {self._file.path} with the SHA-256 {self._file.sha256}, "
                f"what it sends has {self._sha256.hexdigest()}"
            )
        return self.size

    def _continues(self, response: httpx.Response) -> bool:
        part: str = response.headers.get("Content-Range", "")
        return part.startswith(f"bytes {self.size}-")

    def _require_no_more(self, size: int) -> None:
        if self._declared is not None and size > self._declared:
            raise HubProtocolError(
                f"{self._host} declares {self._declared} bytes of {self._file.path} and sends "
                f"{size} or more"
            )
        if size > self._max_bytes:
            raise PayloadTooLarge(
                f"{self._file.path} has {size} bytes or more, and a checkpoint at most "
                f"{self._max_bytes} (MODELKIN_MAX_CHECKPOINT_BYTES)"
            )


def pieces_of_range(
    response: httpx.Response, file: HubFile, begin: int, end: int, host: str
) -> Iterator[bytes]:
    """Yield the bytes ``begin`` up to ``end`` of a file from a response, or the first ones of them.

    Raises:
        RangesIgnored: it is the whole file.
        HubProtocolError: it is another range, of another file, or longer than it says.
    """
    if response.status_code != 206:
        raise RangesIgnored(f"{host} sends whole files alone, not ranges of them")
    found = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
    if found is None or found[1] != str(begin) or not begin <= int(found[2]) < end:
        raise HubProtocolError(f"{host} sends another part of {file.path} than asked for")
    if file.size is not None and found[3] not in {"*", str(file.size)}:
        raise HubProtocolError(
            f"{host} declares {file.size} bytes of {file.path}, and sends a part of {found[3]}"
        )
    left = int(found[2]) + 1 - begin
    for piece in response.iter_raw():
        left -= len(piece)
        if left < 0:
            raise HubProtocolError(f"{host} sends more of {file.path} than it says")
        yield piece


@contextmanager
def writing(file: HubFile) -> Iterator[None]:
    """Turn a failed write into an error of the service, which may be gone at the next attempt."""
    try:
        yield
    except OSError as error:
        error_type = StorageFull if error.errno in _NO_ROOM else Unavailable
        raise error_type(f"{file.path!a} could not be written: {error.strerror}") from error
