"""Bounds of the history: only each tenant's newest events, deliveries and finished jobs are kept.

Age alone bounds little: a busy tenant writes millions of them in a month. Finished rows go first,
oldest first. Waiting rows are deleted only where they alone exceed the quota.

A round counts tenant after tenant for a limited time, and the next one goes on from there.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from app.hubs.repositories import hub_events, sources
from app.infra.db.database import Database, Reader, Writer
from app.jobs import queue
from app.tenancy.quotas.repository import all_overrides
from app.tenancy.quotas.service import QuotaService
from app.webhooks.repositories import deliveries as delivery_repository
from app.webhooks.repositories import events as event_repository

__all__ = ["HistoryBounds"]

_BATCH_SIZE = 500
"""Rows that are deleted in a transaction, and so while other writers of SQLite wait."""
_ROUND_S = 2.0
"""Seconds that a round counts for. A hundred thousand rows of an index take some 5 ms."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Kept:
    """Rows of one kind that belong together, and the most of them that may stay."""

    name: str
    quota: int
    count: Callable[[Reader], int]
    prune: Callable[[Writer, int, int], tuple[int, int]]


class HistoryBounds:
    """Deletes rows beyond the newest events, deliveries and jobs of a tenant.

    Args:
        quotas: the quotas, which are the numbers of rows that stay.
        round_seconds: the length of a round of counting.
    """

    def __init__(
        self, database: Database, quotas: QuotaService, *, round_seconds: float = _ROUND_S
    ) -> None:
        self._database = database
        self._quotas = quotas
        self._round_seconds = round_seconds
        self._last = ""

    def run_once(self, stopping: threading.Event) -> None:
        """Count for a while, and delete rows beyond the bounds; end early when ``stopping`` is set.

        Raises:
            Unavailable: the database cannot be used now.
        """
        until = time.monotonic() + self._round_seconds
        everything = sorted(self._everything(), key=lambda kept: kept.name)
        later = [kept for kept in everything if kept.name > self._last]
        for kept in later or everything:
            self._prune(kept, stopping)
            self._last = kept.name
            if stopping.is_set() or time.monotonic() > until:
                return
        self._last = ""

    def _everything(self) -> Iterator[_Kept]:
        """All bounded rows: those of each tenant, and of each source."""
        with self._database.reading() as session:
            tenants = {
                tenant: self._quotas.defaults.with_overrides(overrides)
                for tenant, overrides in all_overrides(session)
            }
            owners = sources.owners(session)
        for tenant, quotas in tenants.items():
            assert quotas.events is not None
            assert quotas.deliveries is not None
            for name, quota, repository in (
                ("events", quotas.events, event_repository),
                ("deliveries", quotas.deliveries, delivery_repository),
                ("jobs", quotas.events, queue),
            ):
                count = partial(repository.count_of_tenant, tenant_id=tenant)
                prune = partial(repository.prune_oldest, tenant_id=tenant)
                yield _Kept(f"{name} of tenant {tenant}", quota, count, prune)
        for source, tenant in owners:
            events = tenants[tenant].events
            assert events is not None
            count = partial(hub_events.count_events, source_id=source)
            prune = partial(hub_events.prune_oldest, source_id=source)
            yield _Kept(f"events of source {source}", events, count, prune)

    def _prune(self, kept: _Kept, stopping: threading.Event) -> None:
        """Delete the oldest rows beyond a quota, batch by batch, with a pause after each."""
        with self._database.reading() as session:
            if kept.count(session) <= kept.quota:
                return
        deleted = waiting = 0
        some = _BATCH_SIZE
        while some == _BATCH_SIZE and not stopping.is_set():
            begun = time.monotonic()
            with self._database.writing() as session:
                some, unfinished = kept.prune(session, kept.quota, _BATCH_SIZE)
            deleted += some
            waiting += unfinished
            stopping.wait(time.monotonic() - begun)
        if deleted:
            log.info("the oldest %d %s are deleted: %d stay", deleted, kept.name, kept.quota)
        if waiting:
            log.warning("%d of the %s that are deleted were still waiting", waiting, kept.name)
