"""JSON of models and batches."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, ConfigDict, Field
from pydantic_core import to_json

from app.infra.http.fields import CreatedAt, InSpace, ModelName, NextCursor, UpdatedAt
from app.infra.http.requests.preconditions import entity_tag
from app.infra.http.schemas import RequestModel, ResponseModel, Text, finite_numbers
from app.models.catalog.records import DeclaredBases, ModelRecord
from app.models.catalog.writer import BaseChange
from app.models.spaces.origins import StatedOrigin, unchecked_note
from app.models.spaces.records import SpaceRecord
from modelkin._validation import check_base_models, check_model_name
from modelkin.core.kinship.lineage import BaseRelation
from modelkin.errors import InvalidParameter
from modelkin.types.paging import UNCHANGED, Unchanged

__all__ = [
    "BatchLineIn",
    "ModelOut",
    "ModelPage",
    "ModelUpdate",
    "StoredModelOut",
    "merged_attributes",
]


_EXAMPLE: Final[dict[str, Any]] = {
    "space": "digits-cnn",
    "model": "org/fine-tuned",
    "kind": "support",
    "support_size": 121,
    "digest": "sha256:" + 16 * "1f3c",
    "revision": 1,
    "version": 10,
    "tags": ["vision"],
    "attributes": {"task": "digits"},
    "source": None,
    "base_model": "org/base",
    "base_models": ["org/base"],
    "base_relation": "finetune",
    "verified": True,
    "created_at": "2026-05-04T10:00:00Z",
    "updated_at": "2026-05-04T10:00:00Z",
}


class ModelOut(ResponseModel):
    model_config = ConfigDict(json_schema_extra={"examples": [_EXAMPLE]})

    space: InSpace
    model: ModelName
    kind: Literal["support", "signature", "subspace"] = Field(
        description="what it sent: a support, only a signature, or a data subspace"
    )
    support_size: int = Field(description="K; of a data subspace, how many columns it has")
    digest: str | None = Field(
        description="of the support or subspace; null where there is only a signature"
    )
    revision: int = Field(description="how many contents it has had")
    version: int = Field(description="the version of the space when it last changed")
    tags: list[str] = Field(description="texts to find it by, in order of the alphabet")
    attributes: dict[str, Any] = Field(description="the caller's own JSON values, by name")
    source: str | None = Field(
        description="where it comes from, as it was said; null where it was not"
    )
    base_model: str | None = Field(description="the declared base; null where there are several")
    base_models: list[str] = Field(description="all declared bases, as of a merge")
    base_relation: BaseRelation | None = Field(
        description="what the model is said to be of its bases; null where that is not stated"
    )
    verified: bool = Field(description="the signature was computed here, from the support")
    created_at: CreatedAt
    updated_at: UpdatedAt

    @classmethod
    def of(cls, space: SpaceRecord, model: ModelRecord) -> Self:
        return cls(
            space=space.name,
            model=model.name,
            kind=model.shown_kind,
            support_size=model.support_size,
            digest=model.digest,
            revision=model.revision,
            version=model.version,
            tags=list(model.tags),
            attributes=model.attributes,
            source=model.source,
            base_model=model.base_model,
            base_models=list(model.bases),
            base_relation=model.base_relation,
            verified=model.kind == "support",
            created_at=model.created_at,
            updated_at=model.updated_at,
        )

    @classmethod
    def to_bytes(cls, space: SpaceRecord, model: ModelRecord) -> bytes:
        """A model as JSON, its attributes as they are stored: they are not parsed for it."""
        shown = cls.of(space, replace(model, attributes_json="{}"))
        others = shown.model_dump_json(exclude={"attributes"})
        return f'{others[:-1]},"attributes":{model.attributes_json}}}'.encode()


_NOTE: Final = (
    "the space holds supports by weight, and this upload states no importance, so none was compared"
)


class StoredModelOut(ModelOut):
    """A model, and what its upload left unsaid; without a note it reads as the model does."""

    model_config = ConfigDict(json_schema_extra={"examples": [{**_EXAMPLE, "note": _NOTE}]})

    note: str | None = Field(
        None,
        description="where the space has a kind of importance and the upload stated none, so that "
        "nothing was compared; left out otherwise",
    )

    @classmethod
    def of_upload(cls, space: SpaceRecord, model: ModelRecord, origin: StatedOrigin) -> Self:
        shown, note = cls.of(space, model), unchecked_note(space, origin)
        if note is not None:
            shown.note = note
        return shown


class ModelPage(ResponseModel):
    items: list[ModelOut] = Field(description="in the order that was asked for")
    next_cursor: NextCursor


MAX_ATTRIBUTES_BYTES: Final = 16 << 10
MAX_ATTRIBUTES_LEVELS: Final = 8


def _small(attributes: dict[str, Any]) -> dict[str, Any]:
    """The attributes, if they are small; ValueError says how large and deep they may be."""
    size = len(to_json(attributes))
    if size > MAX_ATTRIBUTES_BYTES:
        raise ValueError(
            f"attributes have {MAX_ATTRIBUTES_BYTES} bytes at most as JSON, these have {size}: "
            "keep what is longer elsewhere, and its address here"
        )
    depth = 0
    level: list[dict[str, Any] | list[Any]] = [attributes]
    while level:
        depth += 1
        inner = (each.values() if isinstance(each, dict) else each for each in level)
        level = [item for items in inner for item in items if isinstance(item, dict | list)]
    if depth > MAX_ATTRIBUTES_LEVELS:
        raise ValueError(
            f"attributes have {MAX_ATTRIBUTES_LEVELS} levels at most, these have {depth}: "
            "keep what is deeper elsewhere, and its address here"
        )
    return attributes


Attributes = Annotated[
    dict[str, Any],
    Field(max_length=200, description="16 KiB as JSON and 8 levels at most"),
    AfterValidator(_small),  # first: the others read each value
    AfterValidator(finite_numbers),
]


def merged_attributes(current: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """The attributes with the changes: a new value replaces one of its name, and null removes it.

    Raises:
        InvalidParameter: together they are too large.
    """
    merged = {name: value for name, value in (current | changes).items() if value is not None}
    try:
        return _small(merged)
    except ValueError as error:
        raise InvalidParameter(str(error), field="merge_attributes") from error


class ModelUpdate(RequestModel):
    """New metadata of a model; a field that is absent stays as it is."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"tags": ["round-3"], "attributes": {"site": 7}, "base_model": "org/base"}]
        }
    )

    tags: Annotated[list[str], Field(fail_fast=True)] | None = Field(
        None, description="in place of its tags; an empty list for none"
    )
    attributes: Attributes | None = Field(
        None, description="in place of its attributes; an empty object for none"
    )
    merge_attributes: Attributes | None = Field(
        None, description="into its attributes: a new value for a name, and null to remove one"
    )
    source: Text | None = Field(
        None, description="where it comes from, in your words; null for unknown"
    )
    base_model: str | None = Field(
        None, description="the name of the model that it is made from; null for none"
    )
    base_models: Annotated[list[str], Field(fail_fast=True)] | None = Field(
        None, description="all that it is made from, as of a merge; not with `base_model`"
    )
    base_relation: BaseRelation | None = Field(
        None, description="what it is of its bases; null where that is not stated"
    )

    @property
    def bases(self) -> BaseChange | Unchanged:
        """The change of the declared bases; a relation goes with the bases that it was stated of.

        Raises:
            InvalidParameter: ``base_model`` and ``base_models`` are both given.
            InvalidName: one of the bases is not a model's name, or there are too many.
        """
        given = self.model_fields_set
        if {"base_model", "base_models"} <= given:
            raise InvalidParameter(
                "base_model and base_models say the same: give one of them", field="base_models"
            )
        names: tuple[str, ...] | Unchanged = UNCHANGED
        if "base_model" in given:
            names = () if self.base_model is None else (self.base_model,)
            names = tuple(check_model_name(name, field="base_model") for name in names)
        if "base_models" in given:
            names = check_base_models(self.base_models or ())
        relation = self.base_relation if "base_relation" in given else UNCHANGED
        if isinstance(names, Unchanged) and isinstance(relation, Unchanged):
            return UNCHANGED
        return partial(_changed_bases, names=names, relation=relation)


def _changed_bases(
    current: DeclaredBases,
    *,
    names: tuple[str, ...] | Unchanged,
    relation: BaseRelation | Unchanged | None,
) -> DeclaredBases:
    """The declared bases after a change; what is unchanged stays."""
    kept = current.names if isinstance(names, Unchanged) else names
    if isinstance(relation, Unchanged):
        relation = current.relation if kept == current.names else None
    return DeclaredBases(kept, relation if kept else None)


class BatchLineIn(RequestModel):
    """A line of a batch; the wire codecs read ``signature`` and ``support``."""

    model: str
    signature: dict[str, Any] | None = None
    sketch: str | None = None
    support: str | None = None
    subspace: str | None = None
    media_type: str | None = None
    importance: str | None = None
    base: str | None = None
    layout: str | None = None
    blinding: str | None = None
    tags: Annotated[list[str], Field(fail_fast=True)] | None = None
    attributes: Attributes | None = None
    source: Text | None = None
    base_model: str | None = None


def etag(model: ModelRecord) -> dict[str, str]:
    """The headers of an answer about one model."""
    return {"ETag": entity_tag(model.version_tag)}
