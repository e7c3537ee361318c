"""JSON of fingerprints."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AwareDatetime, ConfigDict, Field

from app.fingerprints.records import Facts, FingerprintRecord
from app.infra.http.fields import ModelName, NextCursor, UpdatedAt
from app.infra.http.requests.preconditions import entity_tag
from app.infra.http.schemas import RequestModel, ResponseModel, Text
from modelkin._validation import check_base_models
from modelkin.core.kinship.lineage import BaseRelation

__all__ = [
    "FactsIn",
    "FingerprintLineIn",
    "FingerprintOut",
    "FingerprintPage",
    "MAX_LICENSE",
    "etag",
]

MAX_LICENSE: Final = 200
_MAX_NUMBER: Final = 2**63 - 1
_EXAMPLE: Final[dict[str, Any]] = {
    "model": "org/fine-tuned",
    "revision": 1,
    "version": 12,
    "scheme": "lines1",
    "scale": 128,
    "digest": "sha256:" + 16 * "1f3c",
    "stated_by": "client",
    "tensors": 103,
    "keys": 2374,
    "lines": {"384": 61_200, "1536": 12_840},
    "parameters": 22_700_000,
    "size": 29_112,
    "base_models": ["org/base"],
    "base_relation": "finetune",
    "license": "apache-2.0",
    "published_at": "2026-05-04T10:00:00Z",
    "file_bytes": 90_800_000,
    "source": None,
    "hub_revision": None,
    "created_at": "2026-05-04T10:00:00Z",
    "updated_at": "2026-05-04T10:00:00Z",
}


class FingerprintOut(ResponseModel):
    model_config = ConfigDict(json_schema_extra={"examples": [_EXAMPLE]})

    model: ModelName
    revision: int = Field(description="how many contents it has had")
    version: int = Field(description="the version of the tenant's fingerprints at its last change")
    scheme: Literal["lines1"] = Field(description="how its keys are made")
    scale: int = Field(description="of the distinct keys one in so many is kept")
    digest: str = Field(description="equal for equal fingerprints alone")
    stated_by: Literal["hub", "client"] = Field(
        description="`hub` where the service read the file, `client` where a client sent it"
    )
    tensors: int = Field(description="how many; equal ones are one")
    keys: int = Field(description="how many are kept")
    lines: dict[str, int] = Field(description="the distinct lines of the checkpoint by length")
    parameters: int = Field(description="of its tensors")
    size: int = Field(description="the bytes of the fingerprint")
    base_models: list[str] = Field(description="what it is said to be made from, unchecked")
    base_relation: BaseRelation | None = Field(description="what it is said to be of them")
    license: str | None = Field(description="as a hub writes it, unchecked")
    published_at: datetime | None = Field(
        description="when a hub or client says it was published; null where none does"
    )
    file_bytes: int | None = Field(description="the bytes of the files that it was made from")
    source: str | None = Field(description="the id of the source that it came by, perhaps gone")
    hub_revision: str | None = Field(description="the hub's revision of the file")
    created_at: datetime = Field(description="when it was stored first, in UTC")
    updated_at: UpdatedAt

    @classmethod
    def of(cls, record: FingerprintRecord) -> Self:
        facts = record.facts
        return cls.model_validate(
            {
                "model": record.name,
                "revision": record.revision,
                "version": record.version,
                "scheme": record.scheme,
                "scale": record.scale,
                "digest": record.digest,
                "stated_by": record.stated_by,
                "tensors": record.tensors,
                "keys": record.keys,
                "lines": {str(length): count for length, count in record.lines.items()},
                "parameters": record.parameters,
                "size": record.size,
                "base_models": list(facts.base_models),
                "base_relation": facts.base_relation,
                "license": facts.license,
                "published_at": facts.published_at,
                "file_bytes": facts.file_bytes,
                "source": record.source_id,
                "hub_revision": record.hub_revision,
                "created_at": record.created_at,
                "updated_at": record.changed_at,
            }
        )


class FingerprintPage(ResponseModel):
    items: list[FingerprintOut] = Field(description="by name")
    next_cursor: NextCursor


class FactsIn(RequestModel):
    """What is said of a fingerprint beside its keys; nothing of it is checked."""

    base_models: Annotated[list[str], Field(fail_fast=True)] = Field(
        default_factory=list, description="the names of the models that it is made from"
    )
    base_relation: BaseRelation | None = Field(None, description="what it is of them")
    license: Annotated[Text, Field(max_length=MAX_LICENSE)] | None = Field(
        None, description="as a hub writes it, `apache-2.0`; null where none is stated"
    )
    published_at: AwareDatetime | None = Field(
        None, description="when it was published, with an offset; null where that is not known"
    )
    file_bytes: int | None = Field(
        None, ge=0, le=_MAX_NUMBER, description="of the files that it was made from"
    )

    def facts(self) -> Facts:
        """The facts for the service.

        Raises:
            InvalidName: one of the bases is not a model's name, or there are too many.
        """
        return Facts(
            check_base_models(self.base_models),
            self.base_relation,
            self.license,
            self.published_at,
            self.file_bytes,
        )


class FingerprintLineIn(FactsIn):
    """A line of a batch."""

    model: str
    fingerprint: str


def etag(record: FingerprintRecord) -> dict[str, str]:
    """The headers of an answer about one fingerprint."""
    return {"ETag": entity_tag(record.version_tag)}
