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
_EARLIER: Final = re.compile(r"\b(remaining|reset)\s*=\s*(\d{1,9})\b")
"""The same of earlier drafts, in small letters."""
_SECONDS: Final = re.compile(r"[0-9]{1,9}")


def asked_wait(response: httpx.Response) -> float | None:
    """The seconds that an answer asks to wait for, a day at most; None if it asks for no wait.

    ``Retry-After`` asks, and at a limit of requests also ``RateLimit``, by the window of each
    policy without a request left. Proxies write earlier drafts of it, ``remaining=0, reset=47``
    and ``RateLimit-Reset``.

    Source: RFC 9110, 10.2.3; draft-ietf-httpapi-ratelimit-headers-10, 4.1, -07 and -03.
    """
    asked = [retry_after(response.headers, datetime.now(UTC))]
    if response.status_code == _LIMITED:
        asked += [_reset(response.headers.get("RateLimit", "")), _earlier(response.headers)]
    waits = [wait for wait in asked if wait is not None]
    return min(max(waits), _MAX_WAIT_S) if waits else None


def _reset(header: str) -> float | None:
    """The longest time until a used-up policy of ``RateLimit`` has requests again."""
    policies = (dict(_PARAMETER.findall(member)) for member in _MEMBER.findall(header))
    times = [float(each["t"]) for each in policies if "t" in each and int(each.get("r", 0)) == 0]
    return max(times, default=None)


def _earlier(headers: httpx.Headers) -> float | None:
    """The time until a limit ends by drafts that know one policy; None while requests are left.

    What is beyond a day is a date, which some write in place of seconds.
    """
    given = dict(_EARLIER.findall(headers.get("RateLimit", "").lower()))
    for name in ("remaining", "reset"):
        given.setdefault(name, headers.get(f"RateLimit-{name}", "").strip())
    reset, remaining = given["reset"], given["remaining"] or "0"
    if not _SECONDS.fullmatch(reset) or not _SECONDS.fullmatch(remaining):
        return None
    return None if int(remaining) or int(reset) > _MAX_WAIT_S else float(reset)
