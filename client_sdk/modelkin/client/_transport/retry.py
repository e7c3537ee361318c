"""Retries of requests, after exponential backoff with full jitter.

Source: RFC 9110, 9.2.2 (idempotent methods). The clients sleep, draw the random numbers and send.
"""

from __future__ import annotations

from dataclasses import dataclass

from modelkin._http_dates import retry_after
from modelkin.client._transport.messages import Request, Response

__all__ = ["Backoff"]

_RETRIED_STATUS = frozenset({429, 503})
_TOO_MUCH = b'"too_much"'
"""The code of a 503 for a request that took too long to answer, and would again."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses between attempts, whose upper bound doubles each time.

    Attributes:
        retries: the number of attempts after the first.
        first_pause_s: the longest pause before the first retry.
        max_pause_s: the longest pause before any retry, beyond the one that the service asks for.
        max_retry_after_s: the longest pause that a service may ask for and get a retry.
    """

    retries: int = 3
    first_pause_s: float = 0.25
    max_pause_s: float = 8.0
    max_retry_after_s: float = 60.0

    def after_failure(self, request: Request, attempt: int, jitter: float) -> float | None:
        """Seconds until the next attempt after a failed one, or None to give up.

        Args:
            request: the request that was sent; only an idempotent one is retried.
            attempt: the number of the attempt, from 0.
            jitter: a number drawn uniformly from 0 to 1.
        """
        if not request.idempotent or attempt >= self.retries:
            return None
        return jitter * min(self.max_pause_s, self.first_pause_s * 2.0**attempt)

    def after_response(
        self, request: Request, response: Response, attempt: int, jitter: float
    ) -> float | None:
        """Seconds until the next attempt after a 429 or 503; None if the response is final.

        A 503 ``too_much`` is final: the same request would take as long again.
        """
        if response.status not in _RETRIED_STATUS or _TOO_MUCH in response.content:
            return None
        wait = self.after_failure(request, attempt, jitter)
        asked = retry_after(response.headers) or 0.0
        if wait is None or asked > self.max_retry_after_s:
            return None
        return asked + wait
