"""The JSON of clusterings in answers."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from app.infra.http.fields import (
    ConstantTensors,
    CreatedAt,
    Estimate,
    LeastCovered,
    Log10P,
    ModelName,
    NextCursor,
    Similarity,
    StandardError,
)
from app.infra.http.schemas import ResponseModel
from app.jobs.schemas import without_models
from app.kinship.clustering.records import ClusteringContent, ClusteringPolicy, ClusteringRecord
from app.kinship.clustering.schemas.requests import Algorithm
from app.models.learngenes.records import LearngeneRecord
from app.models.learngenes.schemas import LearngeneSummary
from app.models.spaces.records import SpaceRecord
from modelkin.types.clusterings import Assignment

__all__ = [
    "AssignmentOut",
    "ClusteringOut",
    "ClusteringPage",
    "ClusteringPolicyOut",
    "ClusteringSummary",
]


class QualityOut(ResponseModel):
    silhouette: float | None = Field(
        description="-1 to 1, of the distance 1 - S; null for fewer than two clusters"
    )
    davies_bouldin: float | None = Field(description="lower is better; it decided nothing")
    calinski_harabasz: float | None = Field(
        description="higher is better; it decided nothing; null likewise"
    )
    models: int = Field(description="how many it was measured on, against all")


class ClusteringSummary(ResponseModel):
    """A clustering, without the clusters of models."""

    id: str = Field(description="that of the job that made it")
    space: str = Field(description="the space whose models were clustered")
    number: int = Field(description="1 for the first of its space")
    algorithm: Algorithm = Field(description="the one that was used")
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
    num_clusters: int = Field(description="how many clusters there are")
    noise: int = Field(description="models in no cluster")
    quality: QualityOut = Field(description="how well the clusters are apart")
    note: str | None = Field(
        description="what chance made of the clusters: that some came apart, since their members "
        "are no nearer than unrelated models, or why that is not known; null for nothing to say"
    )
    previous: str | None = Field(description="the clustering whose ids of clusters go on here")
    agreement: float | None = Field(
        description="the adjusted Rand index to the previous one, over the models of both"
    )
    seconds: float = Field(description="that it took")
    created_at: CreatedAt

    @classmethod
    def of(cls, space: SpaceRecord, clustering: ClusteringRecord) -> ClusteringSummary:
        listed = replace(clustering, parameters=without_models(clustering.parameters))
        return cls.model_validate(_summary(space, listed))


class ClusteringPage(ResponseModel):
    items: list[ClusteringSummary] = Field(description="the newest first")
    next_cursor: NextCursor


class ClusterOut(ResponseModel):
    cluster: int = Field(description="its id, which lasts from one clustering to the next")
    size: int = Field(description="how many members it has")
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
    model: ModelName
    similarity: Similarity
    estimate: Estimate
    standard_error: StandardError
    cluster: int = Field(description="that the model is in; -1 for none")
    expected: float | None = Field(
        description="S0, the similarity by chance; null as in neighbors, and of data subspaces"
    )
    kappa: float | None = Field(
        description="(S - S0) / (1 - S0); likewise. Where all votes have less than .1, or not "
        "surely more, or would by chance over all parameters alike, the cluster is -1"
    )
    log10_p: Log10P = None


class AssignmentOut(ResponseModel):
    clustering: str = Field(description="the id of the clustering")
    cluster: int = Field(
        description="-1 if the nearest are in no cluster, or none is near enough to be kin"
    )
    exemplar: str | None = Field(
        description="the model that stands for the cluster; null for no cluster"
    )
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


class ClusteringPolicyOut(ResponseModel):
    algorithm: Algorithm | None = Field(
        description="null for the one that suits the number of models"
    )
    parameters: dict[str, Any] = Field(description="as of a clustering that is asked for")
    after_changes: int | None = Field(
        description="changes of the space that start one; null for no limit"
    )
    every_seconds: int | None = Field(
        description="after which a change starts one; null for no limit"
    )
    debounce_seconds: int = Field(
        description="how long nothing may have changed before; ten times as long at most"
    )
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
