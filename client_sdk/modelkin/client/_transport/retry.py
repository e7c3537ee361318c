"""When a request is sent again, and after how long: exponential backoff with full jitter.

Source: RFC 9110, 9.2.2 (idempotent methods). It never sleeps, never draws a random number and never
sends: the clients do.
"""

from __future__ import annotations

from dataclasses import dataclass

from modelkin._http_dates import retry_after
from modelkin.client._transport.messages import Request, Response

__all__ = ["Backoff"]

_RETRIED_STATUS = frozenset({429, 503})


@dataclass(frozen=True, slots=True)
class Backoff:
    """Waits that double from try to try.

    Attributes:
        retries: tries after the first.
        first: seconds, the most that is waited before the first retry.
        longest: seconds, the most that is waited before any retry on our own account.
        patience: seconds; a service that asks for a longer pause gets no retry.
    """

    retries: int = 3
    first: float = 0.25
    longest: float = 8.0
    patience: float = 60.0

    def after_failure(self, request: Request, attempt: int, jitter: float) -> float | None:
        """Seconds until the next try after a broken connection, or None: give up.

        Args:
            request: what was sent; given up on where it is not idempotent.
            attempt: 0 for the first try.
            jitter: drawn uniformly from 0 to 1.
        """
        if not request.idempotent or attempt >= self.retries:
            return None
        return jitter * min(self.longest, self.first * 2.0**attempt)

    def after_response(
        self, request: Request, response: Response, attempt: int, jitter: float
    ) -> float | None:
        """Seconds until the next try after a 429 or 503, or None: take the response as it is."""
        if response.status not in _RETRIED_STATUS:
            return None
        wait = self.after_failure(request, attempt, jitter)
        asked = retry_after(response.headers) or 0.0
        if wait is None or asked > self.patience:
            return None
        return asked + wait
