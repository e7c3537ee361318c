"""Rotation of the encryption key: all columns that hold encrypted secrets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from sqlalchemy import select

from app.infra.db.database import Writer
from app.infra.db.tables.hubs import SourceRow
from app.infra.db.tables.webhooks import SubscriptionRow

__all__ = ["COLUMNS", "renew_secrets"]

COLUMNS: Final[tuple[tuple[Any, str], ...]] = (
    (SourceRow, "secret"),
    (SourceRow, "token"),
    (SubscriptionRow, "secret"),
    (SubscriptionRow, "previous_secrets"),
)


def renew_secrets(session: Writer, renew: Callable[[bytes], bytes]) -> int:
    """Replace each encrypted secret; returns how many there are."""
    renewed = 0
    for table, column in COLUMNS:
        held = getattr(table, column)
        for row in session.scalars(select(table).where(held.is_not(None)).with_for_update()):
            setattr(row, column, renew(getattr(row, column)))
            renewed += 1
        session.flush()
    return renewed
