"""Ids of jobs, sources, subscriptions, events and deliveries."""

from __future__ import annotations

import hashlib
import re
import secrets
from datetime import datetime
from uuid import UUID

__all__ = ["is_id", "new_id"]

_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def new_id(at: datetime, name: str | None = None) -> str:
    """A UUID of version 7: ``at`` to the microsecond, then random bits, or those of a name.

    Ids from one process are in order. Source: RFC 9562, section 6.2, method 3.
    """
    milliseconds, rest = divmod(round(at.timestamp() * 1_000_000), 1000)
    drawn = secrets.token_bytes(8) if name is None else hashlib.sha256(name.encode()).digest()[:8]
    bits = milliseconds << 80 | 7 << 76 | (rest * 4096 // 1000) << 64
    bits |= 2 << 62 | int.from_bytes(drawn, "big") >> 2
    return str(UUID(int=bits))


def is_id(text: str) -> bool:
    """Whether a text has the form of an id: databases do not accept every text in a comparison."""
    return _ID.fullmatch(text) is not None
