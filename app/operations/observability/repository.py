"""Counts of the work of all processes, for metrics. Each is read from an index."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import func, select

from app.fingerprints.records import Feed
from app.infra.db.database import Reader
from app.infra.db.tables.anatomies import AnatomyRow
from app.infra.db.tables.fingerprints import FingerprintFeedRow
from app.infra.db.tables.hubs import HubEventRow
from app.infra.db.tables.jobs import JobRow
from app.infra.db.tables.webhooks import WebhookDeliveryRow

__all__ = [
    "count_deliveries",
    "count_due_anatomies",
    "count_hub_events",
    "count_jobs",
    "feeds_of_fingerprints",
]


def count_jobs(session: Reader, since: datetime) -> dict[tuple[str, ...], int]:
    """Jobs by kind and state: all unfinished ones, and those that have finished since."""
    counts = select(JobRow.kind, JobRow.state, func.count()).group_by(JobRow.kind, JobRow.state)
    waiting = counts.where(JobRow.state.in_(("queued", "running")))
    finished = counts.where(JobRow.finished_at >= since)
    rows = [*session.execute(waiting), *session.execute(finished)]
    return {(kind, state): count for kind, state, count in rows}


def count_deliveries(session: Reader, since: datetime) -> dict[str, int]:
    """Webhook deliveries by state: all pending ones, and those that have finished since."""
    row = WebhookDeliveryRow
    counts = select(row.state, func.count().label("number")).group_by(row.state)
    rows = [
        *session.execute(counts.where(row.due_at.is_not(None))),
        *session.execute(counts.where(row.finished_at >= since, row.due_at.is_(None))),
    ]
    return {each.state: each.number for each in rows}


def count_hub_events(session: Reader, since: datetime) -> dict[str, int]:
    """Hub events that were received since, by their outcome."""
    counts = select(HubEventRow.outcome, func.count().label("number")).group_by(HubEventRow.outcome)
    found = session.execute(counts.where(HubEventRow.received_at >= since))
    return {each.outcome: each.number for each in found}


def count_due_anatomies(session: Reader) -> int:
    """Anatomies that are to be made, or made again."""
    due = select(func.count()).select_from(AnatomyRow).where(AnatomyRow.due_at.is_not(None))
    return session.scalar(due) or 0


def feeds_of_fingerprints(session: Reader) -> dict[int, Feed]:
    """The feeds of all tenants, by tenant."""
    return {
        row.tenant_id: Feed(row.version, row.compacted_version, row.fingerprints, row.bytes)
        for row in session.scalars(select(FingerprintFeedRow))
    }
