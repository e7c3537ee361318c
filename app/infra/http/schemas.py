"""The JSON of the API: what is taken, strictly, and what is answered."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from app.catalog.puts import etag_of
from app.index.buckets.protocol import ModelRecord, SpaceRecord
from app.spaces.service import MAX_DIMENSIONS, MAX_TENSOR_NAME
from modelkin.core.support import MAX_PARAMETERS
from modelkin.types.spaces import Neighbors, Overlap

__all__ = [
    "BatchLineIn",
    "ModelOut",
    "ModelPage",
    "ModelUpdate",
    "NeighborsOut",
    "OverlapOut",
    "Problem",
    "SimilarityIn",
    "SimilarityOut",
    "SpaceIn",
    "SpaceOut",
    "SpacePage",
]

Estimate = Literal["exact", "sketch", "signature"]


class _In(BaseModel):
    """What is taken: integers are integers, not ``true`` or ``5.0``; no field is ignored."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


class _Out(BaseModel):
    model_config = ConfigDict(from_attributes=True)


class FieldProblem(BaseModel):
    field: str = Field(description="which field, `layout[3].shape`")
    message: str


class Problem(BaseModel):
    """What every error answers, `application/problem+json` (RFC 9457)."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "type": "urn:modelkin:problem:space_not_found",
                    "title": "Not Found",
                    "status": 404,
                    "code": "space_not_found",
                    "detail": "there is no space 'digits'",
                    "request_id": "a8df58fb98dad03e",
                }
            ]
        }
    )

    type: str = Field(description="a URN that ends with the code")
    title: str
    status: int
    code: str = Field(description="stable, for programs")
    detail: str = Field(description="what is wrong, where, and what to do, for people")
    request_id: str = Field(description="stands in the service's log")
    errors: list[FieldProblem] | None = Field(None, description="of invalid input, by field")


class TensorSpecIn(_In):
    name: Annotated[str, Field(min_length=1, max_length=MAX_TENSOR_NAME)]
    shape: Annotated[
        list[Annotated[int, Field(ge=0, le=MAX_PARAMETERS)]], Field(max_length=MAX_DIMENSIONS)
    ]


class SignatureSpecIn(_In):
    scheme: str | None = Field(None, description="affine32 or fss32; affine64 where M > 2^32")
    num_perm: int = Field(256, ge=1, le=4096, description="h, how many minhashes")
    seed: int = Field(1, ge=0, le=2**32 - 1)


class BandingIn(_In):
    bands: int | None = Field(None, ge=1, le=4096, description="b, how many bands")
    rows: int | None = Field(None, ge=1, le=4096, description="r, minhashes each; b r <= h")
    similarity: float | None = Field(
        None, ge=0, le=1, description="instead: the least S of which 99% have to be found"
    )


class SupportSizeIn(_In):
    policy: Literal["free", "fixed", "agreed"] = Field(
        description="fixed refuses larger supports; agreed tells the median of the K* reported"
    )
    k: int | None = Field(None, ge=1, description="K, where it is fixed")
    fraction: float | None = Field(None, gt=0, le=1, description="or K as a share of M")


class SpaceIn(_In):
    """An index space to make."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "name": "digits-mlp",
                    "layout": [
                        {"name": "0.weight", "shape": [64, 64]},
                        {"name": "0.bias", "shape": [64]},
                        {"name": "2.weight", "shape": [10, 64]},
                        {"name": "2.bias", "shape": [10]},
                    ],
                    "num_parameters": 4810,
                    "signature": {"scheme": "affine32", "num_perm": 256, "seed": 1},
                }
            ]
        }
    )

    name: str = Field(description="[a-z0-9][a-z0-9._-]{0,99}")
    num_parameters: int | None = Field(
        None, ge=1, le=MAX_PARAMETERS, description="M; may be left out where there is a layout"
    )
    layout: list[TensorSpecIn] | None = Field(
        None, min_length=1, description="the tensors in order; overlaps are then told by tensor"
    )
    signature: SignatureSpecIn = Field(default_factory=SignatureSpecIn.model_construct)
    banding: BandingIn | None = Field(
        None,
        description="of the LSH buckets; left out, 64 x 4, or fewer rows where h is below 256",
    )
    support_size: SupportSizeIn | None = Field(
        None, description="how large supports are to be; free where it is left out"
    )


class SupportSizeOut(_Out):
    policy: Literal["free", "fixed", "agreed"]
    k: int | None = Field(description="K, where it is fixed")


class TensorSpecOut(_Out):
    name: str
    shape: list[int]


class SignatureSpecOut(_Out):
    scheme: str
    num_perm: int
    seed: int


class BandingOut(_Out):
    bands: int
    rows: int
    recall: dict[str, float | None] = Field(
        description="the share of the models at a similarity S that method=lsh finds, by S; with a "
        "stop-list as it was measured, null where no two models of about that S were found"
    )

    @classmethod
    def of(cls, space: SpaceRecord) -> BandingOut:
        recall = {str(s): space.recall_at(s) for s in (0.3, 0.5, 0.7, 0.9)}
        return cls(bands=space.banding.bands, rows=space.banding.rows, recall=recall)


class StopListOut(_Out):
    version: int = Field(description="1 for the first; grows with every one that is begun")
    size: int = Field(description="how many indices it holds")
    share: float = Field(description="of the counted supports, how many hold each of them at least")
    models: int = Field(
        description="how many supports were counted: all that there were, up to 1,000; of more a "
        "sample of so many"
    )
    computed_at: datetime


class SpaceOut(_Out):
    name: str
    num_parameters: int
    layout: list[TensorSpecOut] | None
    signature: SignatureSpecOut
    banding: BandingOut
    stop_list: StopListOut | None = Field(
        description="common indices that are left out of what is banded; null without"
    )
    support_size: SupportSizeOut
    models: int = Field(description="how many models it holds")
    supports: int = Field(description="those with a support")
    signatures: int = Field(description="those that sent only a signature")
    version: int = Field(description="grows with every change inside the space")
    created_at: datetime

    @classmethod
    def of(cls, space: SpaceRecord) -> SpaceOut:
        layout = None if space.layout is None else space.layout.to_json()
        return cls(
            name=space.name,
            num_parameters=space.num_parameters,
            layout=None if layout is None else [TensorSpecOut(**tensor) for tensor in layout],
            signature=SignatureSpecOut.model_validate(space.signature),
            banding=BandingOut.of(space),
            stop_list=None
            if space.stop_list is None
            else StopListOut.model_validate(space.stop_list),
            support_size=SupportSizeOut.model_validate(space.support_size),
            models=space.models,
            supports=space.supports,
            signatures=space.signatures,
            version=space.version,
            created_at=space.created_at,
        )


class SpacePage(_Out):
    items: list[SpaceOut]
    next_cursor: str | None


class ModelOut(_Out):
    space: str
    model: str
    kind: Literal["support", "signature"]
    support_size: int = Field(description="K")
    digest: str | None = Field(description="of the support; null where there is only a signature")
    revision: int = Field(description="how many contents it has had")
    version: int = Field(description="the version of the space when it last changed")
    tags: list[str]
    attributes: dict[str, Any]
    source: str | None
    base_model: str | None
    verified: bool = Field(description="the signature was computed here, from the support")
    created_at: datetime
    updated_at: datetime

    @classmethod
    def of(cls, space: SpaceRecord, model: ModelRecord) -> ModelOut:
        return cls(
            space=space.name,
            model=model.name,
            kind=model.kind,
            support_size=model.support_size,
            digest=model.digest,
            revision=model.revision,
            version=model.version,
            tags=list(model.tags),
            attributes=model.attributes,
            source=model.source,
            base_model=model.base_model,
            verified=model.kind == "support",
            created_at=model.created_at,
            updated_at=model.updated_at,
        )


class ModelPage(_Out):
    items: list[ModelOut]
    next_cursor: str | None


def _finite(value: dict[str, Any]) -> dict[str, Any]:
    """JSON has no infinity, yet ``1e400`` parses to one, which could never be answered."""
    stack: list[Any] = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            stack.extend(item.values())
        elif isinstance(item, list):
            stack.extend(item)
        elif isinstance(item, float) and item in (float("inf"), float("-inf")):
            raise ValueError("a number is beyond what a double holds")
        elif isinstance(item, int) and not -(2**63) <= item < 2**64:
            raise ValueError("an integer is beyond 64 bits")
    return value


def _no_nul(value: str) -> str:
    if "\0" in value:
        raise ValueError("NUL cannot be stored")
    return value


Attributes = Annotated[dict[str, Any], Field(max_length=200), AfterValidator(_finite)]
Text = Annotated[str, Field(max_length=2000), AfterValidator(_no_nul)]


class ModelUpdate(_In):
    """What is said of a model; a field that is absent stays as it is."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"tags": ["round-3"], "attributes": {"site": 7}, "base_model": "org/base"}]
        }
    )

    tags: list[str] | None = None
    attributes: Attributes | None = None
    source: Text | None = None
    base_model: str | None = None


class BatchLineIn(_In):
    """A line of a batch. What is in ``signature`` and ``support`` is the wire's to read."""

    model: str
    signature: dict[str, Any] | None = None
    sketch: str | None = None
    support: str | None = None
    media_type: str | None = None
    tags: list[str] | None = None
    attributes: Attributes | None = None


class NeighborOut(_Out):
    model: str
    similarity: float
    jaccard: float
    estimate: Estimate
    standard_error: float = Field(description="of the similarity; 0 where it is exact")
    shared_indices: int | None


class NeighborsOut(_Out):
    model: str | None
    method: str
    items: list[NeighborOut]
    candidates: int = Field(
        description="models that the method proposed; the best of them were compared further"
    )
    recall: float | None = Field(
        description="of method lsh: the share of the models at min_similarity that its buckets "
        "find; more of those beyond. Null of other methods, where buckets were left out, and where "
        "a stop-list is in force and nothing was measured near min_similarity"
    )
    truncated: bool = Field(
        description="method lsh left buckets out that hold too many: others may be as near"
    )
    degraded: bool = Field(
        description="the buckets could not be used and a scan answered, or a stored support could "
        "not be read and its signature stood in"
    )

    @classmethod
    def of(cls, found: Neighbors) -> NeighborsOut:
        return cls.model_validate(found)


class TensorOverlapOut(_Out):
    name: str
    size: int
    a: int
    b: int
    shared_indices: int
    similarity: float | None


class OverlapOut(_Out):
    a: str
    b: str
    shared_indices: int
    similarity: float
    jaccard: float
    tensors: list[TensorOverlapOut] | None

    @classmethod
    def of(cls, found: Overlap) -> OverlapOut:
        return cls.model_validate(found)


class SimilarityIn(_In):
    model_config = ConfigDict(json_schema_extra={"examples": [{"models": ["org/a", "org/b"]}]})

    models: Annotated[list[str], Field(min_length=1, max_length=1000)]


class SimilarityOut(_Out):
    models: list[str]
    similarity: list[list[float]]
    estimated: Sequence[str] = Field(
        description="models without a support: their rows and columns are estimates"
    )


def etag(model: ModelRecord) -> dict[str, str]:
    """The headers of an answer about one model."""
    return {"ETag": etag_of(model)}
