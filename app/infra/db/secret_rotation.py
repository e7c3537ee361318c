"""All columns that hold encrypted secrets, for the rotation of the key and for verification."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import select

from app.infra.db.database import Reader, Writer
from app.infra.db.tables.hubs import SourceRow
from app.infra.db.tables.tenants import IdempotencyKeyRow
from app.infra.db.tables.webhooks import SubscriptionRow

__all__ = ["COLUMNS", "StoredSecret", "renew_secrets", "stored_secrets"]

COLUMNS: Final[tuple[tuple[Any, str], ...]] = (
    (SourceRow, "secret"),
    (SourceRow, "token"),
    (SubscriptionRow, "secret"),
    (SubscriptionRow, "previous_secrets"),
    (IdempotencyKeyRow, "secret_answer"),
)


@dataclass(frozen=True, slots=True)
class StoredSecret:
    """An encrypted secret, and where it is stored."""

    table: str
    id: str
    column: str
    encrypted: bytes


def stored_secrets(session: Reader) -> Iterator[StoredSecret]:
    """All encrypted secrets, at one moment."""
    for table, column in COLUMNS:
        held = getattr(table, column)
        for row_id, encrypted in session.execute(select(table.id, held).where(held.is_not(None))):
            yield StoredSecret(table.__tablename__, row_id, column, encrypted)


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
