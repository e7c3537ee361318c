"""JSON of models and batches."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field

from app.catalog.records import ModelRecord
from app.infra.http.preconditions import entity_tag
from app.infra.http.schemas import RequestModel, ResponseModel, Text, finite_numbers
from app.spaces.records import SpaceRecord

__all__ = ["BatchLineIn", "ModelOut", "ModelPage", "ModelUpdate"]


class ModelOut(ResponseModel):
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


class ModelPage(ResponseModel):
    items: list[ModelOut]
    next_cursor: str | None


Attributes = Annotated[dict[str, Any], Field(max_length=200), AfterValidator(finite_numbers)]


class ModelUpdate(RequestModel):
    """New metadata of a model; a field that is absent stays as it is."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"tags": ["round-3"], "attributes": {"site": 7}, "base_model": "org/base"}]
        }
    )

    tags: list[str] | None = None
    attributes: Attributes | None = None
    source: Text | None = None
    base_model: str | None = None


class BatchLineIn(RequestModel):
    """A line of a batch; the wire codecs read ``signature`` and ``support``."""

    model: str
    signature: dict[str, Any] | None = None
    sketch: str | None = None
    support: str | None = None
    media_type: str | None = None
    importance: str | None = None
    base: str | None = None
    layout: str | None = None
    tags: list[str] | None = None
    attributes: Attributes | None = None


def etag(model: ModelRecord) -> dict[str, str]:
    """The headers of an answer about one model."""
    return {"ETag": entity_tag(model.version_tag)}
