"""JSON of weights and of models with the same."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final, Literal

from pydantic import ConfigDict, Field

from app.infra.http.fields import InSpace, ModelName, NextCursor
from app.infra.http.schemas import RequestModel, ResponseModel, Text
from app.models.spaces.stored_layouts import MAX_TENSOR_NAME_LENGTH, MAX_TENSORS
from modelkin.core.weights import Weights
from modelkin.types.models import StatedWeights

__all__ = ["DuplicatePage", "DuplicateWeightsOut", "WeightsIn", "WeightsOut"]

_MAX_FILES: Final = 100_000
_MAX_DTYPES: Final = 50
_MAX_NUMBER: Final = 2**63 - 1
_EXAMPLE: Final[dict[str, Any]] = {
    "digest": "sha256:" + 16 * "1f3c",
    "tensors": {"embed.weight": 8 * "a0b1", "head.weight": 8 * "c2d3"},
    "files": 2,
    "size": 4_400_000,
    "dtypes": {"BF16": 2_200_000},
}
_BY = Field(description="`hub` where the service read the file, `client` where a client said so")

Digest = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]
TensorName = Annotated[Text, Field(min_length=1, max_length=MAX_TENSOR_NAME_LENGTH)]
TensorDigest = Annotated[str, Field(pattern=r"^[0-9a-f]{32,64}$")]
Count = Annotated[int, Field(ge=0, le=_MAX_NUMBER)]


class WeightsIn(RequestModel):
    model_config = ConfigDict(json_schema_extra={"examples": [_EXAMPLE | {"revision": 1}]})

    digest: Digest = Field(description="that of the SDK's `checkpoints.weights_of`")
    tensors: dict[TensorName, TensorDigest] = Field(
        min_length=1, max_length=MAX_TENSORS, description="the digest of each tensor in hex"
    )
    files: int = Field(ge=1, le=_MAX_FILES, description="how many files hold them")
    size: Count = Field(description="the bytes that they take")
    dtypes: dict[Annotated[Text, Field(max_length=100)], Count] = Field(
        max_length=_MAX_DTYPES, description="parameters by dtype"
    )
    revision: int | None = Field(
        None,
        ge=1,
        le=_MAX_NUMBER,
        description="the revision of the model whose support was made from them; else 409",
    )

    def weights(self) -> Weights:
        return Weights(self.digest, self.tensors, self.files, self.size, self.dtypes)


class WeightsOut(ResponseModel):
    space: InSpace
    model: ModelName
    digest: str = Field(description="the same for the same names, dtypes, shapes and values")
    tensors: dict[str, str] = Field(description="the first 32 digits of each tensor's digest")
    files: int = Field(description="how many files hold them")
    size: int = Field(description="the bytes that they take")
    dtypes: dict[str, int] = Field(description="parameters by dtype")
    stated_by: Literal["hub", "client"] = _BY
    revision: int = Field(description="the revision of the model whose support was made from them")

    @classmethod
    def stated(cls, space: str, model: str, weights: StatedWeights) -> WeightsOut:
        return cls(
            space=space,
            model=model,
            digest=weights.digest,
            tensors=dict(weights.tensors),
            files=weights.files,
            size=weights.size,
            dtypes=dict(weights.dtypes),
            stated_by=weights.stated_by,
            revision=weights.revision,
        )


class DuplicateModelOut(ResponseModel):
    space: InSpace
    model: ModelName
    files: int = Field(description="how many files hold its weights")
    size: int = Field(description="the bytes that they take")
    dtypes: dict[str, int] = Field(description="parameters by dtype")
    stated_by: Literal["hub", "client"] = _BY
    stored_at: datetime = Field(description="when the model was stored first, in UTC")
    says: str | None = Field(description="how its files differ from those of the first; null there")


class DuplicateWeightsOut(ResponseModel):
    digest: str = Field(description="of the weights that all have")
    items: list[DuplicateModelOut] = Field(description="the model that was stored first ahead")
    truncated: bool = Field(description="whether more models have these weights")


class DuplicatePage(ResponseModel):
    items: list[DuplicateWeightsOut] = Field(description="by digest")
    next_cursor: NextCursor
