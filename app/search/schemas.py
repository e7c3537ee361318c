"""JSON of neighbours, overlaps and similarity matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from app.infra.http.fields import (
    ConstantTensors,
    Covered,
    Estimate,
    Expected,
    Jaccard,
    Kappa,
    Log10P,
    ModelName,
    Note,
    SharedIndices,
    Similarity,
)
from app.infra.http.schemas import RequestModel, ResponseModel
from modelkin.types.search import Neighbors, Overlap

__all__ = [
    "MatrixMeasure",
    "NeighborMeasure",
    "NeighborsOut",
    "OverlapOut",
    "SimilarityIn",
    "SimilarityOut",
    "TensorOverlapOut",
]

NeighborMeasure = Literal["similarity", "ordered"]
"""The measure that ranks neighbours: S, or the cosine of indices weighted by octaves of ranks."""
MatrixMeasure = Literal["similarity", "kappa", "ordered"]
"""The values of a matrix: S, kappa (S beyond chance), or the ordered similarity."""


class NeighborOut(ResponseModel):
    model: ModelName
    similarity: Similarity
    jaccard: Jaccard
    estimate: Estimate
    standard_error: float = Field(description="of the similarity; 0 only where it is exact")
    shared_indices: SharedIndices
    expected: Expected
    kappa: Kappa
    ordered_similarity: float | None = Field(
        description="the cosine of the indices, weighted by the octaves of their ranks, exact; "
        "null unless measure is ordered"
    )
    covered: Covered
    unrelated: bool | None = Field(
        description="whether it is as near as chance makes the nearest of the space's models; "
        "where chance in each tensor is not known, whether kappa would be below .1 if the space "
        "were one tensor. Null of data subspaces"
    )
    log10_p: Log10P
    identical: bool | None = Field(
        description="whether its support is the very same as that of the query: a copy, or a model "
        "that was changed too little to tell. Null of data subspaces"
    )


class NeighborsOut(ResponseModel):
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "model": "org/fine-tuned",
                    "method": "exact",
                    "measure": "similarity",
                    "items": [
                        {
                            "model": "org/base",
                            "similarity": 0.802,
                            "jaccard": 0.669,
                            "estimate": "exact",
                            "standard_error": 0.0,
                            "shared_indices": 97,
                            "expected": 0.101,
                            "kappa": 0.779,
                            "ordered_similarity": None,
                            "covered": None,
                            "unrelated": False,
                            "log10_p": -58.2,
                            "identical": False,
                        }
                    ],
                    "candidates": 8,
                    "recall": None,
                    "truncated": False,
                    "ties_left_out": 0,
                    "similarity_slack": 0.0,
                    "degraded": False,
                    "note": None,
                    "constant_tensors": [],
                }
            ]
        }
    )

    model: str | None = Field(
        description="the model that was asked for; null of a support that was sent"
    )
    method: str = Field(description="how candidates were found: `exact`, `scan` or `lsh`")
    measure: NeighborMeasure = Field(description="what ranks the items")
    items: list[NeighborOut] = Field(description="the nearest first")
    candidates: int = Field(
        description="models that the method proposed; the best of them were compared further"
    )
    recall: float | None = Field(
        description="of method lsh: the share of the models at min_similarity that its buckets "
        "find, and more of those beyond. Null for other methods, if buckets were left out, and if "
        "a stop-list is active and nothing was measured near min_similarity"
    )
    truncated: bool = Field(
        description="others may be as near: method lsh left out buckets with too many models, or "
        "the time for the answer was over before all candidates were compared"
    )
    ties_left_out: int = Field(
        description="models that may be among the k nearest, too, and were not compared: more than "
        "the budget allows are so near to each other that estimates cannot order them"
    )
    similarity_slack: float = Field(
        description="how far S at rank k may be below that of method exact for that reason"
    )
    degraded: bool = Field(
        description="the buckets could not be used and a scan answered, or a stored support could "
        "not be read and its signature stood in"
    )
    note: Note
    constant_tensors: ConstantTensors

    @classmethod
    def of(cls, found: Neighbors) -> NeighborsOut:
        return cls.model_validate(found)


class TensorOverlapOut(ResponseModel):
    name: str = Field(description="as in the layout")
    size: int = Field(description="its parameters")
    a: int = Field(description="indices of the first model in it")
    b: int = Field(description="indices of the second model in it")
    shared_indices: int = Field(description="indices in it that both have")
    similarity: float | None = Field(
        description="S within it; null where neither has an index there"
    )
    expected: float | None = Field(description="S by chance within it, 2 a b / size / (a + b)")
    kappa: float | None = Field(description="S beyond chance within it")


class BlockAnglesOut(ResponseModel):
    label: int | None = Field(description="of the class; null for all samples")
    degrees: list[float] = Field(description="ascending, 0 to 90")


class OverlapOut(ResponseModel):
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "a": "org/base",
                    "b": "org/fine-tuned",
                    "shared_indices": 97,
                    "similarity": 0.802,
                    "jaccard": 0.669,
                    "expected": 0.101,
                    "kappa": 0.779,
                    "angles": None,
                    "ordered_similarity": None,
                    "tensors": [
                        {
                            "name": "conv.weight",
                            "size": 400,
                            "a": 36,
                            "b": 39,
                            "shared_indices": 28,
                            "similarity": 0.747,
                            "expected": 0.094,
                            "kappa": 0.721,
                        }
                    ],
                    "note": None,
                    "constant_tensors": [],
                    "covered": None,
                }
            ]
        }
    )

    a: str = Field(description="the name of the first model")
    b: str = Field(description="the name of the second model")
    shared_indices: int | None = Field(description="null of data subspaces")
    similarity: Similarity
    jaccard: Jaccard
    expected: Expected
    kappa: Kappa
    ordered_similarity: float | None = Field(
        description="the cosine of the indices, weighted by the octaves of their ranks; null where "
        "the space is not ordered"
    )
    angles: list[BlockAnglesOut] | None = Field(
        description="principal angles of data subspaces; null of supports"
    )
    tensors: list[TensorOverlapOut] | None = Field(
        description="tensor by tensor, as in the layout; null without one"
    )
    note: Note
    constant_tensors: ConstantTensors
    covered: Covered

    @classmethod
    def of(cls, found: Overlap) -> OverlapOut:
        return cls.model_validate(found)


class SimilarityIn(RequestModel):
    model_config = ConfigDict(json_schema_extra={"examples": [{"models": ["org/a", "org/b"]}]})

    models: Annotated[list[str], Field(min_length=1, max_length=1000)] = Field(
        description="names, in the order of rows and columns"
    )


class SimilarityOut(ResponseModel):
    models: list[str] = Field(description="names, in the order of rows and columns")
    measure: MatrixMeasure = Field(description="which of the three matrices was asked for")
    similarity: list[list[float]] | None = Field(description="S; null where another is asked")
    kappa: list[list[float | None]] | None = Field(
        description="S beyond chance, null of pairs where a side sent only a signature; null as a "
        "whole where another is asked"
    )
    ordered: list[list[float]] | None = Field(
        description="the ordered similarity; null where another is asked"
    )
    estimated: Sequence[str] = Field(
        description="models without a support: their rows and columns are estimates"
    )
    note: Note
    constant_tensors: ConstantTensors
