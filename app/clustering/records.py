"""Clusterings and their policies, as the stores keep them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

__all__ = ["ClusteringContent", "ClusteringPolicy", "ClusteringRecord"]


@dataclass(frozen=True, slots=True)
class ClusteringRecord:
    """A finished clustering of a space, besides which model is in which cluster.

    Attributes:
        id: that of the job which made it.
        number: 1 for the first one of its space that finished, and so on.
        scope: "" where it is of all models of the space, else the same for the same choice of them.
        parameters: what was asked, flat, as the API takes it.
        chosen: the parameters that the algorithm chose by itself.
        version: of the space that it saw.
        similarity: ``exact``, ``mixed`` or ``signature``: how similarities came about.
        models: how many; ``clusters`` they form; ``noise`` of them are in none.
        quality: ``{"silhouette", "davies_bouldin", "calinski_harabasz", "models"}``.
        previous: the id of the one of this scope before it; its ids of clusters went on.
        agreement: the adjusted Rand index to that one, over the models of both.
        seconds: that it took.
    """

    id: str
    space_id: int
    number: int
    scope: str
    algorithm: str
    parameters: dict[str, Any]
    chosen: dict[str, Any]
    version: int
    similarity: str
    models: int
    clusters: int
    noise: int
    quality: dict[str, Any]
    previous: str | None
    agreement: float | None
    seconds: float
    created_at: datetime


@dataclass(frozen=True, slots=True)
class ClusteringContent:
    """Which model is in which cluster of a clustering.

    Attributes:
        models: names, in order.
        labels: the id of each one's cluster, -1 for none.
        clusters: the ids of the clusters, largest first.
        exemplars: the model that stands for each of them.
    """

    models: tuple[str, ...]
    labels: tuple[int, ...]
    clusters: tuple[int, ...]
    exemplars: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ClusteringPolicy:
    """When a space is clustered anew, and how; and what the schedule has noticed so far.

    Attributes:
        request: the clustering request, flat, as the API takes it.
        after_changes: changes of the space after which it is; None for no such number.
        every_seconds: how long after the last time it is, if anything changed; None for never.
        debounce_seconds: how long nothing may have changed before it is.
        done_version: the version that the last clustering as it asks is of; ``done_at`` when that
            was asked for.
        seen_version: the newest version that was noticed; ``seen_at`` when.
        due_since: since when a clustering is due that waits for the changes to end.
        tried_job: the last job that it asked for; None before the first.
        tried_version: the version that this was asked for at.
        failures: how often the same was asked for before, and failed by an outage.
    """

    space_id: int
    request: dict[str, Any]
    after_changes: int | None
    every_seconds: int | None
    debounce_seconds: int
    created_at: datetime
    updated_at: datetime
    done_version: int
    done_at: datetime | None
    seen_version: int
    seen_at: datetime
    due_since: datetime | None
    tried_job: str | None = None
    tried_version: int = 0
    failures: int = 0
