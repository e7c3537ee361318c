"""The jobs of hubs: syncs of a model, polls of a hub, and pruning of old hub events."""

from __future__ import annotations

from datetime import timedelta

from app.hubs.backfill import BACKFILL_INTERVAL, BACKFILL_TICK, FingerprintBackfill
from app.hubs.incoming.service import PRUNE, HubEventService
from app.hubs.ingestion.service import IngestionService
from app.hubs.polling import TICK, HubPoller
from app.hubs.sync_requests import BACKFILL, INGEST, POLL
from app.jobs.service import JobService

__all__ = ["register_jobs"]

_POLL_INTERVAL = timedelta(seconds=10)
_PRUNE_INTERVAL = timedelta(hours=1)


def register_jobs(
    jobs: JobService,
    ingestion: IngestionService,
    poller: HubPoller,
    backfill: FingerprintBackfill,
    events: HubEventService,
) -> None:
    """Register the jobs of hubs; jobs that call hubs have queues of their own."""
    jobs.register(INGEST, ingestion.execute, queue="hubs")
    jobs.register(BACKFILL, ingestion.execute, queue="backfills")
    jobs.register(POLL, poller.poll, queue="hubs")
    jobs.register(TICK, poller.enqueue_due, queue="short")
    jobs.enqueue_every(_POLL_INTERVAL, TICK, wanted=poller.any_due)
    jobs.register(BACKFILL_TICK, backfill.enqueue_due, queue="short")
    jobs.enqueue_every(BACKFILL_INTERVAL, BACKFILL_TICK, wanted=backfill.any_due)
    jobs.register(PRUNE, events.prune)
    jobs.enqueue_every(_PRUNE_INTERVAL, PRUNE, wanted=events.any_old)
