"""One call from its first try to its result: everything both clients decide alike.

The clients send and sleep; what comes of it is decided here. It never does either, and it draws a
random number only through the function it was given.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

import httpx

from modelkin.client._protocol import spaces
from modelkin.client._protocol.spaces import Call
from modelkin.client._transport.config import Config
from modelkin.client._transport.errors import connection_failed, may_have_arrived, may_retry
from modelkin.client._transport.messages import Response
from modelkin.client._transport.retry import Backoff
from modelkin.client._transport.version_check import VersionNotice

__all__ = ["Exchange", "Outcome", "Terms"]

T = TypeVar("T")

Outcome: TypeAlias = httpx.Response | httpx.RequestError
"""What a try comes to: an answer, whatever it says, or none."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What holds for every exchange of one client.

    Attributes:
        url: of the service, for messages.
        backoff: when to try again.
        jitter: draws from 0 to 1.
        notice: says once that the service is of another version.
    """

    url: str
    backoff: Backoff
    jitter: Callable[[], float]
    notice: VersionNotice

    @classmethod
    def of(cls, config: Config, jitter: Callable[[], float]) -> Terms:
        return cls(config.url, Backoff(config.retries), jitter, VersionNotice(config.url))

    def read(self, answer: httpx.Response, repeated: bool = False) -> Response:
        """An answer as a plain value, its version looked at."""
        self.notice.see(answer.headers)
        return Response(answer.status_code, dict(answer.headers), answer.content, repeated)

    def is_ready(self, outcome: Outcome) -> bool:
        """What the one try of :func:`_protocol.ready` means: no answer is no error, but no."""
        if isinstance(outcome, httpx.RequestError):
            return False
        return spaces.is_ready(self.read(outcome))


class Exchange(Generic[T]):
    """A call, the tries it has had and the answer it is left with.

        while (pause := exchange.after(send(call.request))) is not None:
            sleep(pause)
        return exchange.result()

    Args:
        call: what is sent, and how its answer is read.
        terms: the client's.
    """

    def __init__(self, call: Call[T], terms: Terms) -> None:
        self._call = call
        self._terms = terms
        self._tries = 0
        self._may_have_arrived = False
        self._response: Response | None = None

    def after(self, outcome: Outcome) -> float | None:
        """Seconds to wait before the next try, or None: :meth:`result` has the answer.

        Raises:
            ConnectionFailed: there was no answer, and there is no next try.
        """
        request, backoff, jitter = self._call.request, self._terms.backoff, self._terms.jitter()
        attempt = self._tries
        self._tries += 1
        if not isinstance(outcome, httpx.RequestError):
            self._response = self._terms.read(outcome, self._may_have_arrived)
            return backoff.after_response(request, self._response, attempt, jitter)
        pause = backoff.after_failure(request, attempt, jitter) if may_retry(outcome) else None
        if pause is None:
            raise connection_failed(outcome, request, self._terms.url) from outcome
        self._may_have_arrived = self._may_have_arrived or may_have_arrived(outcome)
        return pause

    @property
    def size(self) -> int:
        """Bytes of the answer that :meth:`result` reads."""
        return len(self._answer.content)

    def result(self) -> T:
        """The answer, read.

        Raises:
            ApiError: it is a refusal.
            ModelkinError: it is in a form that this version does not know.
        """
        return spaces.answer(self._call, self._answer, self._terms.url)

    @property
    def _answer(self) -> Response:
        assert self._response is not None, "a result is asked for once after() has answered None"
        return self._response
