"""How long an HTTP answer asks whoever hears it to wait: the header ``Retry-After``.

Source: RFC 9110, 10.2.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from email.utils import parsedate_to_datetime

__all__ = ["retry_after"]


def retry_after(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """The pause in seconds, 0 or more; None where none is asked for that can be read.

    Args:
        headers: of the answer, by names in lower case.
        now: what a date is taken relative to where the answer has no ``Date`` of its own; by that
            one no two clocks need to agree.
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
