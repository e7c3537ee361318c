"""``HubHttpClient``: requests to a hub, bounded in bytes and time, every redirect checked.

A token goes to the hub's own origin alone, and into no message. Bytes are counted as they arrive,
declared sizes are never trusted, and nothing is unpacked. Which addresses a request may reach is
decided by the egress client.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeVar
from urllib.parse import urljoin, urlsplit

import httpx

from app.hubs.clients.answers import path_of, read_answer
from app.hubs.clients.download import Download, pieces_of_range, writing
from app.hubs.clients.pauses import Pauses
from app.hubs.clients.protocol import HubFile, Received, Sink
from app.infra.egress.client import Egress, EgressRefused
from app.infra.egress.limits import Patience
from app.infra.egress.waits import asked_wait
from app.infra.egress.web_origins import web_origin
from app.infra.errors import HubForbidden, HubProtocolError, HubTimeout, HubUnavailable
from modelkin.errors import ModelkinError

__all__ = ["MAX_ATTEMPTS", "TransferLimits", "Refusal", "HubHttpClient", "require_few"]

T = TypeVar("T")

_MAX_REDIRECTS: Final = 5
MAX_ATTEMPTS: Final = 3
"""Times that a file is begun or continued before its job is retried later."""
_LEAST_SHARE: Final = 16
"""A range may come in several answers, as HTTP allows; one of a smaller share is a failure."""
_TRANSIENT: Final = {408, 416, 425, 429}
"""Transient statuses below 500; 416 says that a file ended too early."""
_REFUSED: Final = {400, 401, 403}
"""What stores answer to a signed address that has expired; the hub gives another one."""
_IDENTITY: Final = {"", "identity"}
_MAX_EXCERPT_BYTES: Final = 16 << 10
_MAX_MODELS: Final = 100_000
"""The most models of one listing."""
_HEADER: Final = re.compile(
    rb"[\x21-\x7e\x80-\xff](?:[\t\x20-\x7e\x80-\xff]*[\x21-\x7e\x80-\xff])?"
)
"""The syntax of a header's value (RFC 9110, section 5.5)."""

Refusal = Callable[[httpx.Response, bytes], ModelkinError | None]
"""The hub's meaning of a status of 400 to 499 and the start of the body; None for HTTP's own."""


@dataclass(frozen=True, slots=True)
class TransferLimits:
    """Limits of bytes and time for what a hub sends.

    Attributes:
        checkpoint_bytes: the largest checkpoint, all its files together.
        timeout: seconds that the hub may keep its job waiting, over all requests together.
        slowest: bytes whose arrival earns a second of that back.
        prompt: seconds of waiting for a whole answer that do not count.
        total: seconds for all requests, from the opening of the hub.
        answer_bytes: the largest response that is not a file.
    """

    checkpoint_bytes: int
    timeout: float = 30.0
    slowest: int = 64 << 10
    prompt: float = 3.0
    total: float = 4 * 3600.0
    answer_bytes: int = 16 << 20


class HubHttpClient:
    """An HTTP client for one hub.

    Args:
        base: the hub's address.
        egress: the maker of guarded HTTP clients.
        authorization: the value of the header, for the hub's origin only; None without a token.
        limits: the limits of bytes and time.
        refusal: a function that interprets the hub's refusals.
        before_request: a function that is called before every request; an error that it raises ends
            the work.
        pauses: the pauses of all clients of the process; None for those of this one alone.

    Raises:
        HubForbidden: the authorization cannot be sent; the message does not show it.
    """

    def __init__(
        self,
        base: str,
        egress: Egress,
        *,
        authorization: str | None,
        limits: TransferLimits,
        refusal: Refusal,
        before_request: Callable[[], None] = lambda: None,
        pauses: Pauses | None = None,
    ) -> None:
        self.base = base.rstrip("/")
        self.host = urlsplit(self.base).netloc.rpartition("@")[2]
        self._authorization = None if authorization is None else self._sendable(authorization)
        self._patience = Patience(limits.timeout, limits.slowest)
        self._client = egress.client(timeout=limits.timeout, limit=lambda: self._patience)
        self._limits = limits
        self._refusal = refusal
        self._before_request = before_request
        self._pauses = Pauses() if pauses is None else pauses
        self._limited = web_origin(self.base), self._authorization
        self._end = time.monotonic() + limits.total

    @property
    def authorized(self) -> bool:
        """Whether requests carry a token."""
        return self._authorization is not None

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def json(
        self, url: str, form: type[T], params: Mapping[str, Any] | None = None
    ) -> tuple[T, httpx.Headers, str]:
        """The JSON of a path below the base, or of a whole address; its headers and final address.

        Args:
            form: the type of the answer; its parts may stay undecoded. Half a surrogate pair in a
                text becomes U+FFFD.

        Raises:
            HubProtocolError: the response is not JSON, or too large.
            HubUnavailable: the hub is down. ``refusal`` decides on the hub's refusals.
        """
        with self._errors_mapped():
            address = httpx.URL(self._absolute(url))
            if params:
                address = address.copy_merge_params(params)
        body = bytearray()
        asked = {b"Accept": b"application/json"}
        with self._answer(str(address), asked) as response:
            for piece in response.iter_raw():
                body += piece
                if len(body) > self._limits.answer_bytes:
                    raise HubProtocolError(
                        f"{self.host} answered more than {self._limits.answer_bytes} bytes to "
                        f"{path_of(address)}"
                    )
            headers, final = response.headers, str(response.url)
        answer = read_answer(body, form, f"{self.host} answered", path_of(address))
        return answer, headers, final

    def next_page(self, headers: httpx.Headers, address: str) -> str | None:
        """The next page of a listing, from its ``Link`` header (RFC 8288); None at the end.

        Raises:
            HubProtocolError: the link leads to another hub.
        """
        found = re.search(r'<([^>]+)>\s*;[^,]*\brel="?next"?', headers.get("Link", ""))
        if found is None:
            return None
        further = self._next(address, found[1])
        if web_origin(further) != web_origin(self.base):
            raise HubProtocolError(
                f"the listing of {self.host} goes on at another hub: {further[:200]!a}"
            )
        return further

    def download(self, url: str, file: HubFile, into: Path, received: Received | None) -> int:
        """Write the file at ``url`` to ``into``; return its size. See :meth:`Hub.download`."""
        download = Download(
            file, self._limits.checkpoint_bytes, self.host, received, self._require_time
        )
        with writing(file), into.open("wb") as target:
            return self._whole(url, download, target)

    def beginning(self, url: str, size: int) -> tuple[bytes, int | None]:
        """The first bytes of the file at ``url``, and its whole size; None where it is unknown."""
        headers = {b"Range": f"bytes=0-{size - 1}".encode()}
        with self._answer(self._absolute(url), headers) as response:
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

    def part(self, url: str, file: HubFile, begin: int, end: int, into: Sink) -> frozenset[str]:
        """Write part of the file at ``url`` to ``into``; see :meth:`Hub.part`."""
        done, failures, versions = begin, 0, set[str]()
        while done < end:
            before = done
            try:
                for piece in self._range(url, file, done, end, versions):
                    with writing(file):
                        into.write(piece)
                    done += len(piece)
                if done < end and done - before <= (end - before) // _LEAST_SHARE:
                    raise HubUnavailable(
                        f"{self.host} sends {done - before} of {end - before} bytes of {file.path}"
                    )
            except HubUnavailable:
                failures += 1
                if failures == MAX_ATTEMPTS or done == before:
                    raise
        return frozenset(versions)

    def _range(
        self, url: str, file: HubFile, begin: int, end: int, versions: set[str]
    ) -> Iterator[bytes]:
        """The bytes of a range as they come; the version of the file is added to ``versions``."""
        headers = {b"Range": f"bytes={begin}-{end - 1}".encode()}
        with self._answer(self._absolute(url), headers) as response:
            versions.update(response.headers.get_list("ETag"))
            for piece in pieces_of_range(response, file, begin, end, self.host):
                self._require_time()
                yield piece

    def _whole(self, url: str, download: Download, target: BinaryIO) -> int:
        """Download a whole file; continue it after an interruption, a few times."""
        for _ in range(MAX_ATTEMPTS - 1):
            try:
                return self._continue(url, download, target)
            except HubUnavailable as error:
                if not download.size or error.retry_after:
                    raise
        return self._continue(url, download, target)

    def _continue(self, url: str, download: Download, target: BinaryIO) -> int:
        with self._answer(self._absolute(url), download.asked) as response:
            download.take(response, target)
        return download.finish()

    def _absolute(self, url: str) -> str:
        return url if url.startswith(("http://", "https://")) else self.base + url

    @contextmanager
    def _answer(self, url: str, headers: Mapping[bytes, bytes]) -> Iterator[httpx.Response]:
        """A successful response after all redirects, its body not read yet.

        Answers that come promptly never use up the hub's time, however many there are.
        """
        before = self._patience.left
        with self._errors_mapped():
            for _ in range(_MAX_REDIRECTS):
                self._before_request()
                self._require_time()
                self._require_no_pause()
                request = self._client.build_request(
                    "GET", url, headers=self._headers(url, headers)
                )
                response = self._client.send(request, stream=True)
                try:
                    if not response.has_redirect_location:
                        self._require_good(response)
                        yield response
                        self._patience.earn(min(self._limits.prompt, before - self._patience.left))
                        return
                    url = self._next(url, response.headers["Location"])
                finally:
                    response.close()
        raise HubProtocolError(f"{self.host} redirects more than {_MAX_REDIRECTS} times")

    def _headers(self, url: str, headers: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
        own = web_origin(url) == web_origin(self.base)
        token = {b"Authorization": self._authorization} if own and self._authorization else {}
        # A compressed body may expand to any number of bytes.
        return {**headers, b"Accept-Encoding": b"identity", **token}

    def _sendable(self, value: str) -> bytes:
        """A header's value as HTTP allows it, without blanks at its ends."""
        sent = value.encode("utf-8", "surrogatepass").strip(b" \t")
        if _HEADER.fullmatch(sent) is None:
            raise HubForbidden(
                f"the source's token for {self.host} holds a line break or another control "
                f"character, so it cannot be sent: set it again"
            )
        return sent

    def _require_time(self) -> None:
        if time.monotonic() > self._end:
            raise HubTimeout(
                f"{self.host} took more than {self._limits.total:g} s for all requests together "
                f"(MODELKIN_HUB_SYNC_TIMEOUT_SECONDS)"
            )

    def _require_no_pause(self) -> None:
        """Ask nothing of a hub that limits requests until the time that it has named."""
        left = self._pauses.left(self._limited)
        if left:
            raise HubUnavailable(
                f"{self.host} limits requests, and asks to wait {math.ceil(left)} s",
                retry_after=left,
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
                f"{self.host} redirects to an address that is not followed: use https"
            )
        return target

    def _require_good(self, response: httpx.Response) -> None:
        status = response.status_code
        reason = httpx.codes.get_reason_phrase(status)  # the hub's own may be any text
        answers = f"{response.url.host} answers {status} {reason}".rstrip()
        packed = response.headers.get("Content-Encoding", "").strip().lower() not in _IDENTITY
        if status in {200, 206}:
            if packed:
                raise HubProtocolError(
                    f"{response.url.host} sends {path_of(response.url)} compressed, although that "
                    f"was not asked for"
                )
            return
        if status >= 500 or status in _TRANSIENT:
            wait = asked_wait(response) or 0.0
            if status == httpx.codes.TOO_MANY_REQUESTS and wait:
                self._pauses.note(self._limited, wait)
            raise HubUnavailable(
                answers + (f", and asks to wait {wait:.0f} s" if wait else ""),
                retry_after=wait,
            )
        if status in _REFUSED and web_origin(str(response.url)) != web_origin(self.base):
            raise HubUnavailable(
                f"{answers} to an address that {self.host} gave, which may have expired"
            )
        refused = None
        if 400 <= status < 500:
            refused = self._refusal(response, b"" if packed else _excerpt(response))
        raise refused or HubForbidden(f"{answers} to {path_of(response.url)}")

    @contextmanager
    def _errors_mapped(self) -> Iterator[None]:
        """Turn transport errors into hub errors; a refused address stays :class:`EgressRefused`."""
        try:
            yield
        except EgressRefused:
            raise
        except httpx.TimeoutException as error:
            raise HubUnavailable(
                f"{self.host} is too slow: it may keep a job waiting for "
                f"{self._limits.timeout:g} s in all ({error})"
            ) from error
        except httpx.LocalProtocolError:  # its text would show the header
            raise HubProtocolError(
                f"{self.host} cannot be asked: HTTP does not allow this request"
            ) from None
        except httpx.TransportError as error:
            reason = str(error) or type(error).__name__
            raise HubUnavailable(f"{self.host} cannot be reached: {reason}") from error
        except httpx.InvalidURL as error:
            raise HubProtocolError(f"{self.host} leads to an invalid address: {error}") from error


def _excerpt(response: httpx.Response) -> bytes:
    """The beginning of a body; empty where it cannot be read, since the status counts."""
    excerpt = b""
    try:
        for piece in response.iter_raw():
            excerpt += piece
            if len(excerpt) >= _MAX_EXCERPT_BYTES:
                break
    except httpx.TransportError:
        return b""
    return excerpt[:_MAX_EXCERPT_BYTES]


def require_few(items: Iterable[T], host: str) -> Iterator[T]:
    """The items of a listing, up to a limit.

    Raises:
        HubForbidden: there are more.
    """
    for number, item in enumerate(items):
        if number == _MAX_MODELS:
            raise HubForbidden(
                f"{host} lists more than {_MAX_MODELS:,} models, the most that a poll reads: "
                f"narrow the source's filters, or rely on webhooks"
            )
        yield item
