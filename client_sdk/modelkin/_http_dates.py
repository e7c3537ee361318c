"""The pause that an HTTP answer asks for: the header ``Retry-After``.

Source: RFC 9110, 10.2.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from email.utils import parsedate_to_datetime

__all__ = ["retry_after"]


def retry_after(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """The pause in seconds, 0 or more; None without a readable header.

    Args:
        headers: the headers of the answer, by names in lower case.
        now: the time that a date is compared with where the answer has no ``Date``. Its own
            ``Date`` works even if the two clocks differ.
    """
    value = headers.get("retry-after", "").strip()
    if value.isascii() and value.isdigit():
        return float(value)
    until, sent = _date(value), _date(headers.get("date", "")) or now
    if until is None or sent is None:
        return None
    return max(0.0, (until - sent).total_seconds())


def _date(value: str) -> datetime | None:
    try:
        date = parsedate_to_datetime(value)
    except (ValueError, TypeError, OverflowError):
        return None
    # "-0000" makes a date without a zone, which does not subtract from one with.
    return date if date.tzinfo is not None else None
