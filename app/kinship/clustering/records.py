"""Clusterings and their policies, as the stores keep them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

__all__ = ["ClusteringContent", "ClusteringPolicy", "ClusteringRecord"]


@dataclass(frozen=True, slots=True)
class ClusteringRecord:
    """A finished clustering of a space, without the clusters of models.

    Attributes:
        id: that of the job which made it.
        number: 1 for the first one of its space that finished, and so on.
        scope: "" if it is of all models of the space, else equal for equal selections of models.
        parameters: of the request, flat, in the form of the API.
        chosen: the parameters that the algorithm chose by itself.
        version: of the space that was clustered.
        similarity: ``exact``, ``mixed`` or ``signature``, the kind of the similarities.
        models: how many; ``clusters`` they form; ``noise`` of them are in no cluster.
        quality: ``{"silhouette", "davies_bouldin", "calinski_harabasz", "models"}``.
        previous: the id of the one of this scope before it, whose cluster ids it continues.
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
    """The labels of a clustering.

    Attributes:
        models: names, in order.
        labels: the id of each one's cluster, -1 for no cluster.
        clusters: the ids of the clusters, largest first.
        exemplars: the model that represents each of them.
        within: the mean S of the models of each of them, each with itself included; empty in one of
            an earlier version.
        overall: likewise, of all models; None in one of an earlier version.
    """

    models: tuple[str, ...]
    labels: tuple[int, ...]
    clusters: tuple[int, ...]
    exemplars: tuple[str, ...]
    within: tuple[float, ...] = ()
    overall: float | None = None


@dataclass(frozen=True, slots=True)
class ClusteringPolicy:
    """When and how a space is clustered again, and what the periodic task has observed.

    Attributes:
        request: of the clustering, flat, in the form of the API.
        after_changes: changes of the space after which it is due; None for no such limit.
        every_seconds: seconds since the last one after which it is due, if anything changed; None
            for never.
        debounce_seconds: seconds without a change that must pass first.
        done_version: the version of the last clustering with these terms; ``done_at`` when that was
            requested.
        seen_version: the newest version that was observed; ``seen_at`` when.
        due_since: since when a clustering is due that waits for the changes to end.
        tried_job: the last job that the policy enqueued; None before the first.
        tried_version: the version at which it was enqueued.
        failures: how often the same was tried before and failed by an outage.
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
