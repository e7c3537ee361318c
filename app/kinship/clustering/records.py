"""Clusterings and their policies, as the stores keep them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

__all__ = ["ClusteringContent", "ClusteringPolicy", "ClusteringRecord"]

_NOTE: Final = "note"
"""The place of the note among the parameters that were chosen."""


@dataclass(frozen=True, slots=True)
class ClusteringRecord:
    """A finished clustering of a space, without the clusters of models.

    Attributes:
        id: the id of the job that made it.
        number: 1 for the first finished clustering of its space, and so on.
        scope: "" for all models of the space, else a text that is equal for equal selections of
            models.
        parameters: the parameters of the request, flat, in the form of the API.
        chosen: the parameters that the algorithm chose by itself, and the note.
        version: the version of the space that was clustered.
        similarity: the source of the similarities: ``exact``, ``mixed`` or ``signature``.
        models: the number of models; they form ``clusters``, and ``noise`` of them are in no
            cluster.
        quality: ``{"silhouette", "davies_bouldin", "calinski_harabasz", "models"}``.
        previous: the id of the previous clustering of this scope, whose cluster ids it continues.
        agreement: the adjusted Rand index to the previous one, over the models of both.
        seconds: the seconds that it took.
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

    @property
    def note(self) -> str | None:
        """What chance made of the clusters, in words; None where nothing is to be said."""
        found: str | None = self.chosen.get(_NOTE)
        return found

    @property
    def chosen_alone(self) -> dict[str, Any]:
        """What the algorithm chose, without the note."""
        return {name: value for name, value in self.chosen.items() if name != _NOTE}


@dataclass(frozen=True, slots=True)
class ClusteringContent:
    """The labels of a clustering.

    Attributes:
        models: the models' names, in order.
        labels: the id of each model's cluster, -1 for no cluster.
        clusters: the ids of the clusters, largest first.
        exemplars: the model that represents each cluster.
        within: the mean S of the models of each cluster, each with itself included; empty in a
            clustering of an earlier version.
        overall: the same mean S over all models; None in a clustering of an earlier version.
        log10_p: the decimal logarithm of the P of the weakest link that holds each cluster
            together; None where it is not known, empty in a clustering of an earlier version.
        kappa: the mean S beyond chance of the pairs of each cluster, likewise.
    """

    models: tuple[str, ...]
    labels: tuple[int, ...]
    clusters: tuple[int, ...]
    exemplars: tuple[str, ...]
    within: tuple[float, ...] = ()
    overall: float | None = None
    log10_p: tuple[float | None, ...] = ()
    kappa: tuple[float | None, ...] = ()


@dataclass(frozen=True, slots=True)
class ClusteringPolicy:
    """The terms of clustering a space again, and the observations of the periodic task.

    Attributes:
        request: the request for the clustering, flat, in the form of the API.
        after_changes: changes of the space after which a clustering is due; None for no such limit.
        every_seconds: seconds after the last clustering until the next is due, if anything changed;
            None for never.
        debounce_seconds: seconds without a change that must pass first.
        done_version: the version of the last clustering with these terms; ``done_at`` is the time
            of its request.
        seen_version: the newest version that was observed, at ``seen_at``.
        due_since: the time since which a due clustering waits for the changes to end.
        tried_job: the last job that the policy enqueued; None before the first.
        tried_version: the version at which that job was enqueued.
        failures: the number of earlier tries of the same that failed by an outage.
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
