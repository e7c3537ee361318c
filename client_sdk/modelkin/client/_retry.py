"""When a request is sent again, and after how long: exponential backoff with full jitter.

Source: RFC 9110, 9.2.2 (idempotent methods) and 10.2.3 (Retry-After). It never sleeps, never draws
a random number and never sends: the clients do.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime

from modelkin.client._messages import Request, Response

__all__ = ["Backoff", "retry_after"]

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
        asked = retry_after(response)
        if wait is None or asked > self.patience:
            return None
        return asked + wait


def retry_after(response: Response) -> float:
    """The pause in seconds that the service asks for, 0 where it asks for none.

    A date is taken relative to the response's own ``Date``, so no two clocks need to agree.
    """
    value = response.headers.get("retry-after", "").strip()
    if value.isascii() and value.isdigit():
        return float(value)
    until, now = _date(value), _date(response.headers.get("date", ""))
    if until is None or now is None:
        return 0.0
    return max(0.0, (until - now).total_seconds())


def _date(value: str) -> datetime | None:
    try:
        date = parsedate_to_datetime(value)
    except (ValueError, TypeError):
        return None
    # "-0000" makes a date without a zone, which does not subtract from one with.
    return date if date.tzinfo is not None else None
