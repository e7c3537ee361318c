"""Upkeep of the indexes of fingerprints on this machine, so that no question has to build one."""

from __future__ import annotations

import threading

from app.fingerprints.finding.feed import TenantFeed
from app.fingerprints.finding.index import FindingIndex
from app.fingerprints.finding.repository import large_tenants
from app.infra.db.database import Database
from app.infra.deadlines import Deadline
from app.infra.errors import Unavailable

__all__ = ["FindingIndexes"]

_LEAST = 1000
"""Fingerprints of a tenant whose index is kept up; fewer are read as they are asked for."""
_MOST_TENANTS = 100
_READ_S = 20.0
"""Seconds that one transaction reads: a longer one would keep the database from its clean-up."""
_PAUSE_S = 1.0


class FindingIndexes:
    """Follows the feeds of the largest tenants.

    Args:
        database: the database that has the feeds.
        least: the fingerprints of a tenant from which on it is one of them.
    """

    def __init__(self, database: Database, index: FindingIndex, *, least: int = _LEAST) -> None:
        self._database = database
        self._index = index
        self._least = least

    def run_once(self, stopping: threading.Event) -> None:
        """Follow each feed to its present version.

        Raises:
            Unavailable: the database cannot be used now.
        """
        with self._database.reading() as session:
            tenants = large_tenants(session, self._least, _MOST_TENANTS)
        for tenant_id in tenants:
            while not (stopping.is_set() or self._follow(tenant_id, stopping)):
                stopping.wait(_PAUSE_S)
        self._index.run_once(stopping)

    def _follow(self, tenant_id: int, stopping: threading.Event) -> bool:
        """Whether the index is there; if not, it goes on from where it is."""
        with self._database.reading() as session:
            feed = TenantFeed(session, tenant_id)
            try:
                self._index.keep_up(feed, tenant_id, Deadline(_READ_S, stopping.is_set))
            except Unavailable:
                return False
        return True
