"""Queries for the sweep of the blobs: its time, its lineage, and the orphans that it found."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from datetime import datetime

from sqlalchemy import delete, insert, select, update

from app.infra.db.database import Reader, Writer
from app.infra.db.tables.blobs import OrphanBlobRow
from app.infra.db.tables.tenants import InstallationRow

__all__ = [
    "claim_sweep",
    "due_orphans",
    "forget_all_orphans",
    "forget_orphans",
    "get_lineage",
    "is_sweep_due",
    "known_orphans",
    "note_orphans",
    "renew_lineage",
]

_IDS_PER_STATEMENT = 500  # below every backend's limit of bound parameters


def is_sweep_due(session: Reader, before: datetime) -> bool:
    """Whether no sweep has begun since ``before``."""
    last = session.scalars(select(InstallationRow.swept_at)).one()
    return last is None or last <= before


def claim_sweep(session: Writer, before: datetime, now: datetime) -> bool:
    """Record that a sweep begins; False where another process was faster."""
    claimed = session.scalar(
        update(InstallationRow)
        .where(InstallationRow.swept_at.is_(None) | (InstallationRow.swept_at <= before))
        .values(swept_at=now)
        .returning(InstallationRow.token)
        .execution_options(synchronize_session=False)
    )
    return claimed is not None


def get_lineage(session: Reader) -> str | None:
    """The lineage that the last sweep drew; None before the first."""
    return session.scalars(select(InstallationRow.lineage)).one()


def renew_lineage(session: Writer) -> str:
    """Draw a new lineage and return it."""
    drawn = secrets.token_hex(16)
    session.execute(update(InstallationRow).values(lineage=drawn))
    return drawn


def due_orphans(session: Reader, before: datetime, limit: int) -> Sequence[str]:
    """The keys that were noted until ``before``, ``limit`` at most."""
    query = select(OrphanBlobRow.key).where(OrphanBlobRow.found_at <= before)
    return session.scalars(query.order_by(OrphanBlobRow.key).limit(limit)).all()


def known_orphans(session: Reader, keys: Iterable[str]) -> set[str]:
    """Return the ``keys`` that are noted as orphans."""
    wanted, found = list(keys), set[str]()
    for at in range(0, len(wanted), _IDS_PER_STATEMENT):
        some = OrphanBlobRow.key.in_(wanted[at : at + _IDS_PER_STATEMENT])
        found.update(session.scalars(select(OrphanBlobRow.key).where(some)))
    return found


def note_orphans(session: Writer, keys: Iterable[str], now: datetime) -> None:
    """Note keys that are not noted yet."""
    session.execute(insert(OrphanBlobRow), [{"key": key, "found_at": now} for key in keys])


def forget_orphans(session: Writer, keys: Sequence[str]) -> None:
    """Delete some notes."""
    for at in range(0, len(keys), _IDS_PER_STATEMENT):
        some = OrphanBlobRow.key.in_(keys[at : at + _IDS_PER_STATEMENT])
        session.execute(delete(OrphanBlobRow).where(some))


def forget_all_orphans(session: Writer) -> None:
    """Delete all notes."""
    session.execute(delete(OrphanBlobRow))
