"""Counts of the work of all processes, for metrics. Each is read from an index."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import func, select

from app.infra.db.database import Reader
from app.infra.db.tables.hubs import HubEventRow
from app.infra.db.tables.jobs import JobRow
from app.infra.db.tables.webhooks import WebhookDeliveryRow

__all__ = ["count_deliveries", "count_hub_events", "count_jobs"]


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
