"""The signing secrets of a subscription: the newest, and previous secrets that have not expired.

The previous secrets are stored as one encrypted text, so key rotation covers them as well.
"""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Final

from app.infra.errors import Conflict
from app.infra.storage.encryption import Secrets
from app.webhooks.repositories.subscriptions import Subscription

__all__ = ["MAX_PREVIOUS_SECRETS", "previous_secrets", "signing_secrets"]

MAX_PREVIOUS_SECRETS: Final = 5
"""Previous secrets that sign beside the newest: every delivery carries a signature of each."""


def signing_secrets(secrets: Secrets, subscription: Subscription, now: datetime) -> list[str]:
    """The secrets that sign now, the newest first.

    Raises:
        Unavailable: this process cannot decrypt them.
    """
    before = _before(secrets, subscription, now)
    return [secrets.decrypt(subscription.secret), *(secret for secret, _ in before)]


def previous_secrets(
    secrets: Secrets, subscription: Subscription, overlap: timedelta, now: datetime
) -> tuple[bytes | None, datetime | None]:
    """Encrypt the secrets that a rotation leaves valid, with the time until which the last signs.

    Without an overlap, no previous secret signs any longer.

    Raises:
        Conflict: too many previous secrets sign already.
        Unavailable: this process cannot decrypt them.
    """
    if not overlap:
        return None, None
    kept = _before(secrets, subscription, now)
    if len(kept) >= MAX_PREVIOUS_SECRETS:
        ends = min(until for _, until in kept)
        raise Conflict(
            f"{MAX_PREVIOUS_SECRETS} previous secrets still sign, the first of them until "
            f"{ends:%Y-%m-%d %H:%M} UTC: rotate with overlap_seconds=0 to expire them all"
        )
    kept = [(secrets.decrypt(subscription.secret), now + overlap), *kept]
    listed = [[secret, until.isoformat()] for secret, until in kept]
    return secrets.encrypt(json.dumps(listed)), max(until for _, until in kept)


def _before(
    secrets: Secrets, subscription: Subscription, now: datetime
) -> list[tuple[str, datetime]]:
    """The previous secrets that have not expired, and until when each signs."""
    until = subscription.previous_until
    if subscription.previous_secrets is None or until is None or until <= now:
        return []
    listed = json.loads(secrets.decrypt(subscription.previous_secrets))
    held = [(str(secret), datetime.fromisoformat(until)) for secret, until in listed]
    return [(secret, until) for secret, until in held if until > now]
