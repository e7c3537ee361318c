"""The JSON that asks for clusterings."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field

from app.infra.http.schemas import RequestModel
from app.kinship.clustering.policies import PolicyTerms
from app.kinship.clustering.request import MAX_MATRIX_MODELS, ClusteringRequest
from app.kinship.fields import BlocksThatMeet, ComparedBy
from modelkin._validation import check_model_name, check_tags

__all__ = ["Algorithm", "ClusteringIn", "ClusteringPolicyIn", "NewcomerIn"]

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
    similarity: ComparedBy = "auto"
    compare: BlocksThatMeet = None
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


class NewcomerIn(RequestModel):
    """The newcomer that joins a cluster."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"model": "ward-25"}]})

    model: str = Field(description="a stored model that is not in the clustering yet")


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

    algorithm: Algorithm | None = Field(
        None, description="null for the one that suits the number of models"
    )
    parameters: ClusteringParameters = Field(
        default_factory=ClusteringParameters.model_construct,
        description="as of a clustering that is asked for",
    )
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
