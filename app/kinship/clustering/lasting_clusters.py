"""``LastingClusters``: the ids of clusters, which last from one clustering to the next."""

from __future__ import annotations

import threading
from typing import Final

from cachetools import LRUCache

from app.infra.db.database import Reader
from app.kinship.clustering.records import ClusteringRecord
from app.kinship.clustering.repositories import clusterings
from app.models.learngenes.records import ClusterSet
from app.models.spaces.records import SpaceRecord

__all__ = ["LastingClusters"]

_MAX_REMEMBERED: Final = 1000


class LastingClusters:
    """The clusters of clusterings. A few sets stay in memory, since these never change."""

    def __init__(self) -> None:
        self._known: LRUCache[str, ClusterSet] = LRUCache(_MAX_REMEMBERED)
        self._lock = threading.Lock()

    def latest(self, session: Reader, space: SpaceRecord, scope: str = "") -> ClusterSet | None:
        """Return the clusters of the newest clustering of a scope; None where there is none."""
        found = clusterings.find_latest(session, space, scope)
        return None if found is None else self._of(session, found)

    def of(self, session: Reader, space: SpaceRecord, clustering: str) -> ClusterSet:
        """Return the clusters of a clustering.

        Raises:
            ClusteringNotFound: the space has no clustering of this id.
        """
        return self._of(session, clusterings.get_clustering(session, space, clustering))

    def _of(self, session: Reader, clustering: ClusteringRecord) -> ClusterSet:
        with self._lock:
            known = self._known.get(clustering.id)
        if known is None:
            ids = frozenset(clusterings.content(session, clustering).clusters)
            known = ClusterSet(clustering.id, clustering.scope, ids)
            with self._lock:
                self._known[clustering.id] = known
        return known
