"""The JSON of clusterings: strict requests, and answers."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any, Literal

from pydantic import ConfigDict, Field

from app.infra.http.schemas import (
    ConstantTensors,
    LeastCovered,
    Log10P,
    RequestModel,
    ResponseModel,
)
from app.jobs.schemas import without_models
from app.kinship.clustering.policies import PolicyTerms
from app.kinship.clustering.records import ClusteringContent, ClusteringPolicy, ClusteringRecord
from app.kinship.clustering.request import MAX_MATRIX_MODELS, ClusteringRequest
from app.models.learngenes.records import LearngeneRecord
from app.models.learngenes.schemas import LearngeneSummary
from app.models.spaces.records import SpaceRecord
from modelkin._validation import check_model_name, check_tags
from modelkin.types.clusterings import Assignment

__all__ = [
    "AssignmentOut",
    "ClusteringIn",
    "ClusteringOut",
    "ClusteringPage",
    "ClusteringPolicyIn",
    "ClusteringPolicyOut",
    "ClusteringSummary",
    "NewcomerIn",
]

Algorithm = Literal["affinity_propagation", "leiden", "agglomerative", "hdbscan"]

_CHOICES = {"algorithm", "seed", "similarity", "tags", "models", "compare"}
"""The fields of a request that every algorithm shares."""
_YEAR_S = 366 * 24 * 3600


class ClusteringParameters(RequestModel):
    """The parameters of a clustering, all of them optional."""

    preference: float | None = Field(
        None,
        ge=-1e6,
        le=1,
        description="of affinity_propagation: how similar a model is to itself; lower makes fewer "
        "clusters. Chosen by the silhouette where it is left out",
    )
    damping: float | None = Field(
        None, ge=0.5, lt=1, description="of affinity_propagation; .9 by default"
    )
    n_clusters: int | None = Field(
        None, ge=1, le=MAX_MATRIX_MODELS, description="of agglomerative; chosen by the silhouette"
    )
    distance_threshold: float | None = Field(
        None,
        gt=0,
        le=1,
        description="of agglomerative, in place of n_clusters: clusters this far apart (1 - S) or "
        "farther stay apart",
    )
    linkage: Literal["average", "complete", "single"] | None = Field(
        None, description="of agglomerative; average by default"
    )
    resolution: float | None = Field(
        None,
        gt=0,
        le=1000,
        description="of leiden: higher makes more clusters; chosen by the silhouette",
    )
    neighbors: int | None = Field(
        None, ge=1, le=100, description="of leiden: nearest neighbours in the graph; 15 by default"
    )
    min_cluster_size: int | None = Field(
        None, ge=2, le=MAX_MATRIX_MODELS, description="of hdbscan; chosen by the silhouette"
    )
    min_samples: int | None = Field(
        None,
        ge=1,
        le=MAX_MATRIX_MODELS,
        description="of hdbscan: more leaves more models in no cluster; chosen where left out",
    )
    seed: int = Field(0, ge=0, lt=2**31, description="the same seed gives the same clusters")
    similarity: Literal["auto", "exact", "signature"] = Field(
        "auto",
        description="what is compared: supports (exact), signatures, or supports as far as that "
        "takes no longer than minutes",
    )
    compare: Literal["classes", "whole"] | None = Field(
        None, description="of data subspaces: which blocks meet; left out, as the space says"
    )
    tags: list[str] = Field(
        default_factory=list, max_length=100, description="only models that carry all of these"
    )
    models: list[str] | None = Field(
        None, min_length=1, max_length=1000, description="only these models; all by default"
    )

    def to_request(self, algorithm: str | None) -> ClusteringRequest:
        """The request, with checked names."""
        given = self.model_dump(exclude_none=True)
        models = None
        if self.models is not None:
            names = (check_model_name(n, field=f"models[{i}]") for i, n in enumerate(self.models))
            models = tuple(dict.fromkeys(names))
        return ClusteringRequest(
            algorithm=algorithm,
            options={name: value for name, value in given.items() if name not in _CHOICES},
            seed=self.seed,
            similarity=self.similarity,
            tags=check_tags(self.tags, field="tags"),
            models=models,
            compare=self.compare,
        )


class ClusteringIn(ClusteringParameters):
    """A clustering to make."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"algorithm": "agglomerative", "n_clusters": 2}]}
    )

    algorithm: Algorithm | None = Field(
        None,
        description="by default affinity_propagation up to 2,000 models, leiden beyond",
    )


class QualityOut(ResponseModel):
    silhouette: float | None = Field(
        description="-1 to 1, of the distance 1 - S; null for fewer than two clusters"
    )
    davies_bouldin: float | None = Field(description="lower is better; it decided nothing")
    calinski_harabasz: float | None
    models: int = Field(description="how many it was measured on, against all")


class ClusteringSummary(ResponseModel):
    """A clustering, without the clusters of models."""

    id: str = Field(description="that of the job that made it")
    space: str
    number: int = Field(description="1 for the first of its space")
    algorithm: Algorithm
    parameters: dict[str, Any] = Field(
        description="as they were given; a listing leaves out `models`"
    )
    chosen: dict[str, Any] = Field(
        description="parameters that the algorithm chose by itself; as constant_tensors the "
        "tensors that no training changed, if similarities left some out; and as covered the least "
        "share of the parameters over which two models were compared, if that is not 1"
    )
    version: int = Field(description="of the space that was clustered")
    similarity: Literal["exact", "mixed", "signature"] = Field(
        description="how similarities came about; mixed: exact for pairs of which both have a "
        "support, beyond 2,000 models for the nearest alone"
    )
    models: int = Field(description="how many were clustered")
    num_clusters: int
    noise: int = Field(description="models in no cluster")
    quality: QualityOut
    note: str | None = Field(
        description="what chance made of the clusters: that some came apart, since their members "
        "are no nearer than unrelated models, or why that is not known; null for nothing to say"
    )
    previous: str | None = Field(description="the clustering whose ids of clusters go on here")
    agreement: float | None = Field(
        description="the adjusted Rand index to the previous one, over the models of both"
    )
    seconds: float = Field(description="that it took")
    created_at: datetime

    @classmethod
    def of(cls, space: SpaceRecord, clustering: ClusteringRecord) -> ClusteringSummary:
        listed = replace(clustering, parameters=without_models(clustering.parameters))
        return cls.model_validate(_summary(space, listed))


class ClusteringPage(ResponseModel):
    items: list[ClusteringSummary]
    next_cursor: str | None


class ClusterOut(ResponseModel):
    cluster: int = Field(description="its id, which lasts from one clustering to the next")
    size: int
    exemplar: str = Field(description="the member that is most similar to all of them")
    members: list[str] = Field(description="by name")
    log10_p: float | None = Field(
        description="the decimal logarithm of the P of the weakest link that holds its members "
        "together, of so much between unrelated models: an index of one lies in the other with the "
        "probability that makes kappa .1. Null of a single model, without a layout, and for a "
        "clustering of an earlier version"
    )
    kappa: float | None = Field(
        description="the mean S beyond chance of pairs of its members, of 50 at most; null likewise"
    )


class ClusteringOut(ClusteringSummary):
    """A clustering."""

    labels: dict[str, int] = Field(description="the cluster of each model; -1 for none")
    clusters: list[ClusterOut] = Field(description="the largest first")

    @classmethod
    def with_content(
        cls, space: SpaceRecord, clustering: ClusteringRecord, held: ClusteringContent
    ) -> ClusteringOut:
        none = (None,) * len(held.clusters)
        chance = zip(held.log10_p or none, held.kappa or none, strict=True)
        members: dict[int, list[str]] = {cluster: [] for cluster in held.clusters}
        for model, label in zip(held.models, held.labels, strict=True):
            if label in members:
                members[label].append(model)
        return cls(
            **_summary(space, clustering),
            labels=dict(zip(held.models, held.labels, strict=True)),
            clusters=[
                ClusterOut(
                    cluster=cluster,
                    size=len(members[cluster]),
                    exemplar=exemplar,
                    members=members[cluster],
                    log10_p=log10_p,
                    kappa=kappa,
                )
                for cluster, exemplar, (log10_p, kappa) in zip(
                    held.clusters, held.exemplars, chance, strict=True
                )
            ],
        )


class VoteOut(ResponseModel):
    model: str
    similarity: float
    estimate: Literal["exact", "sketch", "signature"]
    standard_error: float = Field(description="of the similarity; 0 where it is exact")
    cluster: int
    expected: float | None = Field(
        description="S0, the similarity by chance; null as in neighbors, and of data subspaces"
    )
    kappa: float | None = Field(
        description="(S - S0) / (1 - S0); likewise. Where all votes have less than .1, or not "
        "surely more, or would by chance over all parameters alike, the cluster is -1"
    )
    log10_p: Log10P = None


class NewcomerIn(RequestModel):
    """The newcomer that joins a cluster."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"model": "ward-25"}]})

    model: str = Field(description="a stored model that is not in the clustering yet")


class AssignmentOut(ResponseModel):
    clustering: str
    cluster: int = Field(
        description="-1 if the nearest are in no cluster, or none is near enough to be kin"
    )
    exemplar: str | None
    share: float = Field(
        description="of what the clusters' mean S have beyond the 11th nearest model"
    )
    similarity: float | None = Field(
        description="to the nearest model of the cluster, or of all where it is in none; null "
        "where it shares nothing with any"
    )
    mean_similarity: float | None = Field(
        description="the mean S to the 10 nearest members of the nearest cluster, also where it is "
        "in none; null where no cluster is near"
    )
    within: float | None = Field(
        description="the mean S of that cluster's members among themselves, as far as the "
        "newcomer's K allows it; null where it is not known"
    )
    nearest_members: list[str] = Field(
        description="the names of those 10, the nearest first; empty for no cluster"
    )
    reason: str | None = Field(description="why it is in no cluster; null where it is in one")
    note: str | None = Field(
        description="a doubt where it is placed, but is much less like the members than they are "
        "like each other"
    )
    votes: list[VoteOut] = Field(description="of the nearest clustered models, the nearest first")
    constant_tensors: ConstantTensors
    covered: LeastCovered
    log10_p: float | None = Field(
        description="that of the nearest vote of the cluster, or of all where it is in none; null "
        "where the vote has none"
    )
    no_p: str | None = Field(description="why there is no P, in words; null where there is one")
    margin: float = Field(
        description="how much nearer the cluster is than the next, 0 to 1: by squared distances to "
        "centroids for data subspaces, else its share less that of the next"
    )
    compare: Literal["classes", "whole"] | None = Field(
        description="of data subspaces, which blocks met; null of supports"
    )
    learngene: LearngeneSummary | None = Field(
        description="the newest for this cluster, or for the whole space where there is no cluster"
    )

    @classmethod
    def of(
        cls,
        space: SpaceRecord,
        placed: Assignment,
        learngene: LearngeneRecord | None,
        *,
        stale: bool,
    ) -> AssignmentOut:
        found = {name: getattr(placed, name) for name in cls.model_fields if name != "learngene"}
        of_cluster = (
            None if learngene is None else LearngeneSummary.summary(space, learngene, stale=stale)
        )
        margin = placed.margin or 0.0
        return cls.model_validate({**found, "margin": margin, "learngene": of_cluster})


class ClusteringPolicyIn(RequestModel):
    """When a space is clustered again, and how."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "algorithm": "agglomerative",
                    "parameters": {"seed": 1},
                    "after_changes": 100,
                    "every_seconds": 86400,
                    "debounce_seconds": 60,
                }
            ]
        }
    )

    algorithm: Algorithm | None = None
    parameters: ClusteringParameters = Field(default_factory=ClusteringParameters.model_construct)
    after_changes: int | None = Field(
        None, ge=1, le=2**40, description="changes of the space after which it is clustered"
    )
    every_seconds: int | None = Field(
        None, ge=1, le=_YEAR_S, description="how long after the last time, if anything changed"
    )
    debounce_seconds: int = Field(
        30,
        ge=0,
        le=_YEAR_S,
        description="how long nothing may have changed before it is; ten times as long at most",
    )

    def to_terms(self) -> PolicyTerms:
        return PolicyTerms(
            request=self.parameters.to_request(self.algorithm),
            after_changes=self.after_changes,
            every_seconds=self.every_seconds,
            debounce_seconds=self.debounce_seconds,
        )


class ClusteringPolicyOut(ResponseModel):
    algorithm: Algorithm | None
    parameters: dict[str, Any]
    after_changes: int | None
    every_seconds: int | None
    debounce_seconds: int
    pending_changes: int = Field(description="that the last clustering of its kind has not seen")
    last_at: datetime | None = Field(description="when that finished clustering was requested")

    @classmethod
    def of(cls, space: SpaceRecord, policy: ClusteringPolicy) -> ClusteringPolicyOut:
        parameters = dict(policy.request)
        return cls(
            algorithm=parameters.pop("algorithm", None),
            parameters=parameters,
            after_changes=policy.after_changes,
            every_seconds=policy.every_seconds,
            debounce_seconds=policy.debounce_seconds,
            pending_changes=max(0, space.version - policy.done_version),
            last_at=policy.done_at,
        )


def _summary(space: SpaceRecord, clustering: ClusteringRecord) -> dict[str, Any]:
    fields = {name: getattr(clustering, name) for name in ClusteringRecord.__dataclass_fields__}
    fields |= {"space": space.name, "num_clusters": fields.pop("clusters")}
    fields |= {"chosen": clustering.chosen_alone, "note": clustering.note}
    return {name: fields[name] for name in ClusteringSummary.model_fields}
