"""Requests to a hub: bounded in bytes and in time, redirects looked at one by one.

Owns what every hub has in common on the wire. A token goes to the hub's own origin and no further,
and into no message; what comes is counted as it comes, so that no declaration is believed, and
never unpacked. Where a request may go at all is the guarded client's business.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeVar
from urllib.parse import urljoin, urlsplit

import httpx

from app.errors import HubForbidden, HubProtocolError, HubTimeout, HubUnavailable
from app.hubs.clients.download import Download, writing
from app.hubs.clients.protocol import HubFile, Received
from app.infra.egress.client import Egress, EgressRefused
from modelkin._http_dates import retry_after
from modelkin.errors import ModelkinError

__all__ = ["TransferLimits", "Refusal", "HubHttpClient", "bounded", "text_of"]

T = TypeVar("T")

_HOPS: Final = 5
_TRIES: Final = 3
"""Times that a file is begun or continued before its job is put off."""
_PASSING: Final = {408, 416, 425, 429}
"""Statuses below 500 that another time may not come; 416 says that a file ends too early."""
_IDENTITY: Final = {"", "identity"}
_EXCERPT: Final = 16 << 10
_MOST_MODELS: Final = 100_000
"""Of one listing."""
_LONGEST_WAIT: Final = 86400.0
_HEADER: Final = re.compile(
    rb"[\x21-\x7e\x80-\xff](?:[\t\x20-\x7e\x80-\xff]*[\x21-\x7e\x80-\xff])?"
)
"""What the value of a header may be (RFC 9110, section 5.5)."""

Refusal = Callable[[httpx.Response, bytes], ModelkinError | None]
"""What a hub means by a status of 400 to 499 and the beginning of the body; None where it means
nothing of its own.
"""


@dataclass(frozen=True, slots=True)
class TransferLimits:
    """How much of a hub's is taken, and for how long it is waited for.

    Attributes:
        checkpoint_bytes: of all files of one checkpoint together.
        timeout: seconds without a byte.
        grace: seconds that any answer may take, however little comes.
        slowest: bytes of a file that must come a second beyond that.
        total: seconds from the opening of a hub, for all that is asked of it.
        answer_bytes: of an answer that is no file.
    """

    checkpoint_bytes: int
    timeout: float = 30.0
    grace: float = 60.0
    slowest: int = 64 << 10
    total: float = 4 * 3600.0
    answer_bytes: int = 16 << 20


class HubHttpClient:
    """Speaks to one hub.

    Args:
        base: its address.
        egress: the way out.
        authorization: the header's value, for the hub's own origin; None where there is no token.
        limits: of this.
        refusal: reads the hub's refusals.
        heard: called before every request; what it raises ends all.

    Raises:
        HubForbidden: the authorization cannot be sent; does not show it.
    """

    def __init__(
        self,
        base: str,
        egress: Egress,
        *,
        authorization: str | None,
        limits: TransferLimits,
        refusal: Refusal,
        heard: Callable[[], None] = lambda: None,
    ) -> None:
        self.base = base.rstrip("/")
        self.host = urlsplit(self.base).netloc.rpartition("@")[2]
        self._authorization = None if authorization is None else self._sendable(authorization)
        # Files take longer, as long as they keep coming; answers do not.
        self._files = egress.client(
            timeout=limits.timeout, deadline=limits.grace, pace=limits.slowest
        )
        self._answers = egress.client(timeout=limits.timeout, deadline=limits.grace)
        self._limits = limits
        self._refusal = refusal
        self._heard = heard
        self._end = time.monotonic() + limits.total

    @property
    def authorized(self) -> bool:
        """Whether the hub is sent a token."""
        return self._authorization is not None

    def close(self) -> None:
        """Let connections go."""
        self._files.close()
        self._answers.close()

    def json(
        self, url: str, params: Mapping[str, Any] | None = None
    ) -> tuple[Any, httpx.Headers, str]:
        """What a path below the base, or a whole address, answers; with its headers and address.

        Raises:
            HubProtocolError: it is no JSON, or more than anybody reads.
            HubUnavailable: the hub is away. And whatever ``refusal`` makes of its refusals.
        """
        with self._spoken():
            address = httpx.URL(self._absolute(url))
            if params:
                address = address.copy_merge_params(params)
        pieces, size = [], 0
        asked = {b"Accept": b"application/json"}
        with self._answer(self._answers, str(address), asked) as response:
            for piece in response.iter_raw():
                size += len(piece)
                if size > self._limits.answer_bytes:
                    raise HubProtocolError(
                        f"{self.host} answered more than {self._limits.answer_bytes} bytes to "
                        f"{address.path}"
                    )
                pieces.append(piece)
            headers, final = response.headers, str(response.url)
        try:
            return json.loads(b"".join(pieces)), headers, final
        except (ValueError, RecursionError):
            raise HubProtocolError(f"{self.host} answered no JSON to {address.path}") from None

    def next_page(self, headers: httpx.Headers, address: str) -> str | None:
        """Where a listing goes on, as a link in its headers says (RFC 8288); None where it ends.

        Raises:
            HubProtocolError: somewhere else than at this hub.
        """
        found = re.search(r'<([^>]+)>\s*;[^,]*\brel="?next"?', headers.get("Link", ""))
        if found is None:
            return None
        further = self._next(address, found[1])
        if _origin(further) != _origin(self.base):
            raise HubProtocolError(
                f"the listing of {self.host} goes on at another hub: {further[:200]!a}"
            )
        return further

    def download(self, url: str, file: HubFile, into: Path, received: Received | None) -> int:
        """Write what is at ``url`` to a file; answers its size. See :meth:`Hub.download`."""
        download = Download(
            file, self._limits.checkpoint_bytes, self.host, received, self._require_time
        )
        with writing(file), into.open("wb") as target:
            return self._whole(url, download, target)

    def beginning(self, url: str, size: int) -> tuple[bytes, int | None]:
        """The first bytes of what is at ``url``, and how many there are; None if nobody says so."""
        headers = {b"Range": f"bytes=0-{size - 1}".encode()}
        with self._answer(self._files, self._absolute(url), headers) as response:
            part = re.fullmatch(r"bytes 0-\d+/(\d+)", response.headers.get("Content-Range", ""))
            if response.status_code == 206 and part is None:
                raise HubProtocolError(f"{self.host} sends another part of a file than asked for")
            whole = response.headers.get("Content-Length", "") if part is None else part[1]
            begun = bytearray()
            for piece in response.iter_raw():
                self._require_time()
                begun += piece
                if len(begun) >= size:
                    break
        return bytes(begun[:size]), int(whole) if whole.isdecimal() else None

    def _whole(self, url: str, download: Download, target: BinaryIO) -> int:
        """All bytes of a file, in as many answers as are good for it."""
        for _ in range(_TRIES - 1):
            try:
                return self._go_on(url, download, target)
            except HubUnavailable:
                if not download.size:
                    raise
        return self._go_on(url, download, target)

    def _go_on(self, url: str, download: Download, target: BinaryIO) -> int:
        headers = {b"Range": f"bytes={download.size}-".encode()} if download.size else {}
        with self._answer(self._files, self._absolute(url), headers) as response:
            download.take(response, target)
        return download.finish()

    def _absolute(self, url: str) -> str:
        return url if url.startswith(("http://", "https://")) else self.base + url

    @contextmanager
    def _answer(
        self, client: httpx.Client, url: str, headers: Mapping[bytes, bytes]
    ) -> Iterator[httpx.Response]:
        """A good answer, not read yet, behind all redirects."""
        with self._spoken():
            for _ in range(_HOPS):
                self._heard()
                self._require_time()
                request = client.build_request("GET", url, headers=self._headers(url, headers))
                response = client.send(request, stream=True)
                try:
                    if not response.has_redirect_location:
                        self._require_good(response)
                        yield response
                        return
                    url = self._next(url, response.headers["Location"])
                finally:
                    response.close()
        raise HubProtocolError(f"{self.host} redirects more than {_HOPS} times")

    def _headers(self, url: str, headers: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
        own = _origin(url) == _origin(self.base)
        token = {b"Authorization": self._authorization} if own and self._authorization else {}
        # What is packed may be any number of bytes.
        return {**headers, b"Accept-Encoding": b"identity", **token}

    def _sendable(self, value: str) -> bytes:
        """A header's value as HTTP takes it, without the blanks at its ends that it drops."""
        sent = value.encode("utf-8", "surrogatepass").strip(b" \t")
        if _HEADER.fullmatch(sent) is None:
            raise HubForbidden(
                f"the source's token for {self.host} holds a line break or another control "
                f"character, so it cannot be sent: give it anew"
            )
        return sent

    def _require_time(self) -> None:
        if time.monotonic() > self._end:
            raise HubTimeout(
                f"{self.host} took more than {self._limits.total:g} s for all that was asked of it "
                f"(MODELKIN_LOOK_TIMEOUT)"
            )

    def _next(self, url: str, location: str) -> str:
        try:
            target = urljoin(url, location)
            parts = urlsplit(target)
            wrong = parts.scheme not in {"http", "https"} or not parts.hostname or parts.port == 0
        except ValueError:
            wrong, parts = True, urlsplit(url)
        if wrong or (urlsplit(url).scheme == "https" and parts.scheme == "http"):
            raise HubProtocolError(
                f"{self.host} redirects to where nobody follows: to no https address"
            )
        return target

    def _require_good(self, response: httpx.Response) -> None:
        status = response.status_code
        packed = response.headers.get("Content-Encoding", "").strip().lower() not in _IDENTITY
        if status in {200, 206}:
            if packed:
                raise HubProtocolError(
                    f"{response.url.host} sends {response.url.path} compressed, although that was "
                    f"not asked for"
                )
            return
        if status >= 500 or status in _PASSING:
            wait = _wait_of(response)
            raise HubUnavailable(
                f"{response.url.host} answers {status} {response.reason_phrase}"
                + (f", and asks to be left alone for {wait:.0f} s" if wait else ""),
                retry_after=wait,
            )
        refused = None
        if 400 <= status < 500:
            refused = self._refusal(response, b"" if packed else _excerpt(response))
        raise refused or HubForbidden(
            f"{response.url.host} answers {status} {response.reason_phrase} to {response.url.path}"
        )

    @contextmanager
    def _spoken(self) -> Iterator[None]:
        """What goes wrong on the way is the hub's being away, unless nobody may go there."""
        try:
            yield
        except EgressRefused:
            raise
        except httpx.TimeoutException as error:
            raise HubUnavailable(
                f"{self.host} said nothing for {self._limits.timeout:g} s, or is too slow: {error}"
            ) from error
        except httpx.LocalProtocolError:  # would show what was to be sent
            raise HubProtocolError(
                f"{self.host} cannot be asked: HTTP has no such request"
            ) from None
        except httpx.TransportError as error:
            reason = str(error) or type(error).__name__
            raise HubUnavailable(f"{self.host} cannot be reached: {reason}") from error
        except httpx.InvalidURL as error:
            raise HubProtocolError(
                f"{self.host} leads to an address that is none: {error}"
            ) from error


def _excerpt(response: httpx.Response) -> bytes:
    """The beginning of a body; whatever keeps it from being read, the status stands."""
    excerpt = b""
    try:
        for piece in response.iter_raw():
            excerpt += piece
            if len(excerpt) >= _EXCERPT:
                break
    except httpx.TransportError:
        return b""
    return excerpt[:_EXCERPT]


def _wait_of(response: httpx.Response) -> float:
    """Seconds that the hub asks for, a day at most."""
    return min(retry_after(response.headers, datetime.now(UTC)) or 0.0, _LONGEST_WAIT)


def _origin(url: str) -> tuple[str, str, int | None]:
    parts = urlsplit(url)
    port = parts.port or {"https": 443, "http": 80}.get(parts.scheme)
    return parts.scheme, (parts.hostname or "").rstrip("."), port


def bounded(items: Iterable[T], host: str) -> Iterator[T]:
    """The items of a listing, of which nobody looks through any number.

    Raises:
        HubForbidden: there are more.
    """
    for number, item in enumerate(items):
        if number == _MOST_MODELS:
            raise HubForbidden(
                f"{host} lists more than {_MOST_MODELS:,} models, more than a poll looks through: "
                f"narrow the source's filters, or leave it to deliveries"
            )
        yield item


def text_of(value: Any, longest: int = 2000) -> str | None:
    """A hub's text, as it may be stored; None where it is none."""
    if not isinstance(value, str) or not value or "\0" in value:
        return None
    try:
        value.encode()
    except UnicodeEncodeError:
        return None
    return value[:longest]
