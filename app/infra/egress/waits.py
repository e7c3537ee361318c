"""The wait that another service asks for in an answer."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

import httpx

from modelkin._http_dates import retry_after

__all__ = ["asked_wait"]

_MAX_WAIT_S: Final = 24 * 3600.0


def asked_wait(response: httpx.Response) -> float | None:
    """The seconds that ``Retry-After`` asks for, a day at most; None if it asks for no wait."""
    asked = retry_after(response.headers, datetime.now(UTC))
    return None if asked is None else min(asked, _MAX_WAIT_S)
