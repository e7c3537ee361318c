"""One delivery attempt: a signed request, and the outcome that its answer means."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Final

import httpx

from app.infra.egress.client import Egress, EgressRefused
from app.infra.egress.limits import Deadline
from app.infra.egress.waits import asked_wait
from modelkin._version import __version__
from modelkin.webhooks import sign

__all__ = ["Outcome", "Sender"]

_CONNECT_TIMEOUT_S, _DEADLINE_S = 5.0, 15.0
"""Seconds to connect, and for a whole attempt."""
_MAX_EXCERPT_BYTES: Final = 500
"""Bytes of an answer that are read, and kept in the log of the delivery."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of an attempt.

    Attributes:
        at: the time of the attempt.
        seconds: the time that the attempt took.
        status: the status of the answer; None without an answer.
        detail: the receiver's answer, or why there was none, for people.
        retry_after: the delay in seconds that the receiver asked for.
    """

    at: datetime
    seconds: float
    status: int | None
    detail: str
    retry_after: float | None = None

    @property
    def succeeded(self) -> bool:
        """Whether the receiver accepted the event: any 2xx."""
        return self.status is not None and 200 <= self.status < 300

    @property
    def kind(self) -> str:
        """A short description for the operator's log, without any text of the receiver."""
        if self.status is not None:
            return f"answered {self.status}"
        return self.detail.partition(":")[0]

    @property
    def gone(self) -> bool:
        """Whether the receiver accepts no further events."""
        return self.status == 410


class Sender:
    """Makes delivery attempts. Safe for many threads.

    Args:
        egress: opens connections to public addresses only.
        deadline: seconds for an attempt.
    """

    def __init__(self, egress: Egress, *, deadline: float = _DEADLINE_S) -> None:
        self._egress = egress
        self._deadline = deadline

    def send(self, url: str, message_id: str, body: bytes, secrets: Sequence[str]) -> Outcome:
        """Make one attempt. Every attempt has an outcome within the deadline.

        Args:
            url: the receiver's URL.
            message_id: the id of the message, the same for every attempt.
            body: the JSON that is signed.
            secrets: the signing secrets; each adds a signature.
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
        timeout = httpx.Timeout(self._deadline, connect=min(_CONNECT_TIMEOUT_S, self._deadline))
        status, wait = None, None
        try:
            with (
                self._egress.client(
                    timeout=timeout, limit=partial(Deadline, self._deadline)
                ) as client,
                client.stream("POST", url, content=body, headers=headers) as response,
            ):
                status = response.status_code
                wait = asked_wait(response)
                detail = _answer_of(response)
        except EgressRefused as error:
            detail = f"not sent: {error}"
        except httpx.TimeoutException as error:
            detail = f"no answer within {self._deadline:g} s ({type(error).__name__})"
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            detail = f"no answer: {error or type(error).__name__}"
        return Outcome(at, round(time.monotonic() - began, 3), status, detail[:1000], wait)


def _answer_of(response: httpx.Response) -> str:
    """The beginning of a receiver's answer. Its status counts even if its body breaks off."""
    if response.is_redirect:
        where = _redirect_target(response)
        return f"redirects to {where}, which is not followed: change the subscription's url"
    excerpt = b""
    try:
        for part in response.iter_raw(_MAX_EXCERPT_BYTES):
            excerpt += part
            if len(excerpt) >= _MAX_EXCERPT_BYTES:
                break
    except (httpx.HTTPError, EgressRefused) as error:
        return f"its answer broke off ({type(error).__name__})"
    if response.is_success:
        return "received"
    text = excerpt[:_MAX_EXCERPT_BYTES].decode("utf-8", "replace")
    text = text.replace("\0", "\N{REPLACEMENT CHARACTER}")
    answered = f"answered {response.status_code}"
    return f"{answered}: {text}" if text.strip() else answered


def _redirect_target(response: httpx.Response) -> str:
    """The origin that an answer redirects to. Its path and query may be secret."""
    try:
        to = response.url.join(response.headers.get("location", ""))
    except httpx.InvalidURL:
        return "an invalid URL"
    if to.netloc == response.url.netloc and to.scheme == response.url.scheme:
        return "another path on the same host"
    return f"{to.scheme}://{to.netloc.decode('ascii', 'replace')}"[:300]
