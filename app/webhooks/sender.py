"""One attempt to deliver: a signed request, and what its answer means.

It writes nothing down, and knows no schedule.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import httpx

from app.infra.egress.client import Egress, EgressRefused
from modelkin._http_dates import retry_after
from modelkin._version import __version__
from modelkin.webhooks import sign

__all__ = ["Outcome", "Sender"]

_CONNECT, _DEADLINE = 5.0, 15.0
"""Seconds to connect in, and for an attempt altogether."""
_EXCERPT: Final = 500
"""Bytes of an answer that are kept for whoever reads the log; no more is read."""
_LONGEST_WAIT: Final = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of an attempt.

    Attributes:
        at: when it was made.
        seconds: that it took.
        status: of the answer; None where there was none.
        detail: for people: what the receiver said, or why there is nothing that it said.
        retry_after: seconds that the receiver asked for.
    """

    at: datetime
    seconds: float
    status: int | None
    detail: str
    retry_after: float | None = None

    @property
    def succeeded(self) -> bool:
        """The receiver has it: any 2xx, whatever else it said."""
        return self.status is not None and 200 <= self.status < 300

    @property
    def kind(self) -> str:
        """What came of it, for the log of the operator: nothing that a receiver has worded."""
        if self.status is not None:
            return f"answered {self.status}"
        return self.detail.partition(":")[0]

    @property
    def gone(self) -> bool:
        """The receiver wants nothing more, ever."""
        return self.status == 410


class Sender:
    """Sends. One for many threads.

    Args:
        egress: the way out.
        deadline: seconds for an attempt.
    """

    def __init__(self, egress: Egress, *, deadline: float = _DEADLINE) -> None:
        self._egress = egress
        self._deadline = deadline

    def send(self, url: str, message_id: str, body: bytes, secrets: Sequence[str]) -> Outcome:
        """Make one attempt. Whatever the receiver does, there is an outcome within the deadline.

        Args:
            url: of the receiver.
            message_id: the same for every attempt.
            body: the JSON, as it is signed.
            secrets: each signs.
        """
        at, began = datetime.now(UTC), time.monotonic()
        timestamp = int(at.timestamp())
        signatures = " ".join(sign(secret, message_id, timestamp, body) for secret in secrets)
        headers = {
            "Content-Type": "application/json",
            "User-Agent": f"modelkin/{__version__}",
            "Accept-Encoding": "identity",
            "webhook-id": message_id,
            "webhook-timestamp": str(timestamp),
            "webhook-signature": signatures,
        }
        timeout = httpx.Timeout(self._deadline, connect=min(_CONNECT, self._deadline))
        status, wait = None, None
        try:
            with (
                self._egress.client(timeout=timeout, deadline=self._deadline) as client,
                client.stream("POST", url, content=body, headers=headers) as response,
            ):
                status = response.status_code
                wait = _wait_of(response)
                detail = _said(response)
        except EgressRefused as error:
            detail = f"not sent: {error}"
        except httpx.TimeoutException as error:
            detail = f"no answer within {self._deadline:g} s ({type(error).__name__})"
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            detail = f"no answer: {error or type(error).__name__}"
        return Outcome(at, round(time.monotonic() - began, 3), status, detail[:1000], wait)


def _said(response: httpx.Response) -> str:
    """The first of what a receiver says. Its status stands, however its body ends."""
    if response.is_redirect:
        where = _origin(response)
        return f"redirects to {where}, which is not followed: change the subscription's url"
    excerpt = b""
    try:
        for part in response.iter_raw(_EXCERPT):
            excerpt += part
            if len(excerpt) >= _EXCERPT:
                break
    except (httpx.HTTPError, EgressRefused) as error:
        return f"its answer broke off ({type(error).__name__})"
    if response.is_success:
        return "received"
    text = excerpt[:_EXCERPT].decode("utf-8", "replace").replace("\0", "\N{REPLACEMENT CHARACTER}")
    return f"refused: {text}" if text.strip() else "refused"


def _origin(response: httpx.Response) -> str:
    """Where an answer redirects to, as far as that is no secret: paths and queries may be."""
    try:
        to = response.url.join(response.headers.get("location", ""))
    except httpx.InvalidURL:
        return "what is no URL"
    if to.netloc == response.url.netloc and to.scheme == response.url.scheme:
        return "another path of its own"
    return f"{to.scheme}://{to.netloc.decode('ascii', 'replace')}"[:300]


def _wait_of(response: httpx.Response) -> float | None:
    """Seconds that the receiver asks for, a day at most; None where it asks for nothing."""
    asked = retry_after(response.headers, datetime.now(UTC))
    return None if asked is None else min(asked, _LONGEST_WAIT)
