"""``LabelCache``: the cluster of each model, decoded once for many requests.

The labels of a clustering are one compressed text. A page about one model would read the text of
all models at each visit.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from cachetools import LRUCache

from app.infra.db.database import Reader
from app.kinship.clustering.records import ClusteringRecord
from app.kinship.clustering.repositories import clusterings

__all__ = ["LabelCache", "Labels"]

_MAX_MODELS: Final = 200_000
"""Models of all clusterings that are remembered; a model takes about 200 bytes."""


@dataclass(frozen=True, slots=True)
class Labels:
    """The clusters of a clustering's models.

    Attributes:
        of: the cluster of each model, by the model's name; -1 for no cluster.
        sizes: the number of models of each cluster.
    """

    of: Mapping[str, int]
    sizes: Mapping[int, int]

    def __len__(self) -> int:
        return len(self.of)


class LabelCache:
    """The labels of the clusterings that were read last.

    A clustering changes by the models that join it alone, so their number tells its states apart.

    Args:
        max_models: the most models, over all remembered clusterings.
    """

    def __init__(self, max_models: int = _MAX_MODELS) -> None:
        self._known: LRUCache[tuple[str, int], Labels] = LRUCache(max_models, getsizeof=len)
        self._lock = threading.Lock()

    def labels(self, session: Reader, clustering: ClusteringRecord) -> Labels:
        """The labels of a clustering.

        Raises:
            ClusteringNotFound: the clustering was deleted before it was read.
        """
        key = clustering.id, clustering.models
        with self._lock:
            known = self._known.get(key)
        if known is not None:
            return known
        content = clusterings.content(session, clustering)
        pairs = zip(content.models, content.labels, strict=True)
        found = Labels(dict(pairs), Counter(content.labels))
        with self._lock:
            if len(found) <= self._known.maxsize:
                self._known[key] = found
        return found
