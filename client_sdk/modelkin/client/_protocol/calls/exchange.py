"""``Exchange``: a call from its first attempt to its result, with the decisions on retries.

The clients send requests and sleep between attempts. Nothing here does either.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Generic, TypeAlias, TypeVar

import httpx

from modelkin.client._protocol.calls.call import Call, answer, is_ready
from modelkin.client._transport.config import Config
from modelkin.client._transport.deadline import Deadline
from modelkin.client._transport.errors import connection_failure, may_have_arrived, may_retry
from modelkin.client._transport.messages import Response
from modelkin.client._transport.retry import Backoff
from modelkin.client._transport.version_check import VersionNotice

__all__ = ["Exchange", "ExchangeSettings", "Outcome"]

T = TypeVar("T")

Outcome: TypeAlias = Response | httpx.RequestError
"""The outcome of an attempt: a response of any status, or a transport error."""


@dataclass(frozen=True, slots=True)
class ExchangeSettings:
    """The settings that all exchanges of one client share.

    Attributes:
        url: the service's address, for messages.
        backoff: the rule for retries.
        notice: the notice that warns once of a service of another version.
        proxy: the address of the proxy on the way; None without one.
    """

    url: str
    backoff: Backoff
    notice: VersionNotice
    proxy: str | None = None

    @classmethod
    def of(cls, config: Config) -> ExchangeSettings:
        """The settings of a client's configuration."""
        proxy = config.proxy
        address = None if proxy is None else str(proxy.url).rstrip("/")
        return cls(config.url, Backoff(config.retries), VersionNotice(config.url), address)

    def check(self, response: Response) -> Response:
        """A response, after a check of the service's version."""
        self.notice.check(response.headers)
        return response

    def is_ready(self, outcome: Outcome) -> bool:
        """Whether the outcome of one ``requests.ready()`` says that the service can answer."""
        if isinstance(outcome, httpx.RequestError):
            return False
        return is_ready(self.check(outcome))


class Exchange(Generic[T]):
    """A call with its attempts and its final response.

        while (pause := exchange.after(send(call.request), jitter())) is not None:
            sleep(pause)
        return exchange.result()

    Args:
        call: the request, and the reader of its answer.
        settings: the client's settings.
        deadline: the end of the call.
    """

    def __init__(self, call: Call[T], settings: ExchangeSettings, deadline: Deadline) -> None:
        self._call = call
        self._settings = settings
        self._deadline = deadline
        self._attempts = 0
        self._may_have_arrived = False
        self._response: Response | None = None

    def after(self, outcome: Outcome, jitter: float) -> float | None:
        """Seconds until the next attempt, or None if :meth:`result` has the answer.

        There is no next attempt after a pause that would outlast the call.

        Args:
            outcome: the response to the last attempt, or the error that ended it.
            jitter: a number drawn uniformly from 0 to 1.

        Raises:
            ConnectionFailed: no response came, and there is no next attempt.
        """
        request, backoff = self._call.request, self._settings.backoff
        attempt = self._attempts
        self._attempts += 1
        if not isinstance(outcome, httpx.RequestError):
            known = self._settings.check(outcome)
            self._response = replace(known, repeated=self._may_have_arrived)
            return self._in_time(backoff.after_response(request, known, attempt, jitter))
        pause = backoff.after_failure(request, attempt, jitter) if may_retry(outcome) else None
        pause = self._in_time(pause)
        if pause is None:
            url = self._settings.url
            proxy = self._settings.proxy
            raise connection_failure(outcome, request, url, self._deadline, proxy) from outcome
        self._may_have_arrived = self._may_have_arrived or may_have_arrived(outcome)
        return pause

    def _in_time(self, pause: float | None) -> float | None:
        return None if pause is None or pause >= self._deadline.left else pause

    @property
    def size(self) -> int:
        """The number of bytes of the body that :meth:`result` decodes."""
        return len(self._final.content)

    def result(self) -> T:
        """The answer of the service.

        Raises:
            ApiError: the answer is a refusal.
            ModelkinError: this version cannot read the answer.
        """
        return answer(self._call, self._final, self._settings.url)

    @property
    def _final(self) -> Response:
        assert self._response is not None, "there is a result once after() has returned None"
        return self._response
