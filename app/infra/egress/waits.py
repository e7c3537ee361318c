"""The wait that another service asks for in an answer."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

import httpx

from modelkin._http_dates import retry_after

__all__ = ["asked_wait"]

_MAX_WAIT_S: Final = 24 * 3600.0
_LIMITED: Final = 429
_MEMBER: Final = re.compile(r'(?:"[^"]*"|[^",])+')
"""A member of a list of structured fields."""
_PARAMETER: Final = re.compile(r";\s*(r|t)\s*=\s*(\d{1,9})\b")


def asked_wait(response: httpx.Response) -> float | None:
    """The seconds that an answer asks to wait for, a day at most; None if it asks for no wait.

    ``Retry-After`` asks, and at a limit of requests also ``RateLimit``, by the window of each
    policy without a request left.

    Source: RFC 9110, 10.2.3; draft-ietf-httpapi-ratelimit-headers-10, 4.1.
    """
    asked = [retry_after(response.headers, datetime.now(UTC))]
    if response.status_code == _LIMITED:
        asked.append(_reset(response.headers.get("RateLimit", "")))
    waits = [wait for wait in asked if wait is not None]
    return min(max(waits), _MAX_WAIT_S) if waits else None


def _reset(header: str) -> float | None:
    """The longest time until a used-up policy of ``RateLimit`` has requests again."""
    policies = (dict(_PARAMETER.findall(member)) for member in _MEMBER.findall(header))
    times = [float(each["t"]) for each in policies if "t" in each and int(each.get("r", 0)) == 0]
    return max(times, default=None)
