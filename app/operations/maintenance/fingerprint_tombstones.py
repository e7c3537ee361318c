"""Prune old tombstones of fingerprints batch by batch, between other writers."""

from __future__ import annotations

import threading
from typing import Final

from app.fingerprints.repositories import feeds
from app.infra.db.database import Database

__all__ = ["FingerprintTombstones"]

_MIN_KEPT: Final = 10_000
"""Tombstones of a tenant that stay, at least.

An index further behind than these, and than all fingerprints of the tenant, is rebuilt as fast as
it could follow.
"""
_BATCH_SIZE: Final = 10_000
"""Tombstones that are deleted while the feed is locked."""


class FingerprintTombstones:
    """Prunes the tombstones of all tenants.

    Args:
        database: pruned.
        kept: the number of tombstones that stay, for each tenant.
    """

    def __init__(self, database: Database, kept: int = _MIN_KEPT) -> None:
        self._database = database
        self._kept = kept

    def run_once(self, stopping: threading.Event) -> None:
        """Delete the oldest where there are many; end early when ``stopping`` is set.

        Raises:
            Unavailable: the database cannot be used now.
        """
        with self._database.reading() as session:
            crowded = feeds.feeds_to_compact(session, more_than=self._kept)
        for tenant_id, fingerprints, removals in crowded:
            keep = max(self._kept, fingerprints)
            if removals >= 2 * keep:  # in large batches
                while not stopping.is_set() and self._prune_some(tenant_id, keep):
                    pass

    def _prune_some(self, tenant_id: int, keep: int) -> bool:
        with self._database.writing() as session:
            pruned = feeds.prune_tombstones(session, tenant_id, keep=keep, batch_size=_BATCH_SIZE)
        return pruned > 0
