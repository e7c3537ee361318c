"""The secrets of a subscription: the one it has, and those before it whose time is not over.

Those before it are one encrypted text: so they are as secret as the other, and renewed with it.
"""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Final

from app.errors import Conflict
from app.infra.storage.encryption import Secrets
from app.webhooks.repository import Subscription

__all__ = ["MOST_BEFORE", "outgoing", "signing"]

MOST_BEFORE: Final = 5
"""Secrets that sign beside the newest: every delivery carries a signature of each."""


def signing(secrets: Secrets, subscription: Subscription, now: datetime) -> list[str]:
    """What signs now, the newest first.

    Raises:
        Unavailable: this process cannot decrypt them.
    """
    before = _before(secrets, subscription, now)
    return [secrets.decrypt(subscription.secret), *(secret for secret, _ in before)]


def outgoing(
    secrets: Secrets, subscription: Subscription, overlap: timedelta, now: datetime
) -> tuple[bytes | None, datetime | None]:
    """What is kept of secrets when another takes their place, and until when; with no overlap they
    all end.

    Raises:
        Conflict: there are very many, and none of them has ended yet.
        Unavailable: this process cannot decrypt them.
    """
    if not overlap:
        return None, None
    kept = _before(secrets, subscription, now)
    if len(kept) >= MOST_BEFORE:
        ends = min(until for _, until in kept)
        raise Conflict(
            f"{MOST_BEFORE} secrets from before sign as well, the first of them until "
            f"{ends:%Y-%m-%d %H:%M} UTC: rotate with overlap_seconds=0 to end them all"
        )
    kept = [(secrets.decrypt(subscription.secret), now + overlap), *kept]
    told = [[secret, until.isoformat()] for secret, until in kept]
    return secrets.encrypt(json.dumps(told)), max(until for _, until in kept)


def _before(
    secrets: Secrets, subscription: Subscription, now: datetime
) -> list[tuple[str, datetime]]:
    """The secrets before, and until when each signs; those whose time is over are left out."""
    until = subscription.previous_until
    if subscription.previous_secrets is None or until is None or until <= now:
        return []
    told = json.loads(secrets.decrypt(subscription.previous_secrets))
    held = [(str(secret), datetime.fromisoformat(until)) for secret, until in told]
    return [(secret, until) for secret, until in held if until > now]
