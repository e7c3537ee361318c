"""The JSON of public spaces: strict settings, and answers with scores alone."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import AfterValidator, ConfigDict, Field

from app.infra.http.fields import ModelName, NextCursor
from app.infra.http.schemas import RequestModel, ResponseModel
from app.models.spaces.records import SpaceRecord
from app.models.spaces.schemas.answers import ImportanceBase, ImportanceKind, SignatureSpecOut
from app.search.public.records import MAX_DAILY_QUERIES, STEPS, Nearest, PublicSettings, PublicSpace
from app.search.public.service import MAX_DESCRIPTION_LENGTH

__all__ = [
    "PublicNeighborsOut",
    "PublicSettingsIn",
    "PublicSpaceDetails",
    "PublicSpaceOut",
    "PublicSpacePage",
]


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("a description has printable characters alone, on one line")
    return text


class PublicSettingsIn(RequestModel):
    """How a space is public."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "step": 0.05,
                    "floor": 0.3,
                    "daily_queries": 1000,
                    "description": "Fine-tunes of our digits model; write to models@example.org",
                }
            ]
        }
    )

    step: float = Field(  # no enum: generators of clients know none of numbers with a point
        0.05, description=f"scores are multiples of it: {', '.join(map(str, STEPS))}"
    )
    floor: float = Field(
        0.3, gt=0, le=1, description="the least score that is shown, more than one step"
    )
    daily_queries: int = Field(
        1000,
        ge=1,
        le=MAX_DAILY_QUERIES,
        description="that each tenant may make in a day of UTC",
    )
    description: Annotated[
        str, Field(max_length=MAX_DESCRIPTION_LENGTH), AfterValidator(_printable)
    ] = Field("", description="for people of other tenants")

    def settings(self) -> PublicSettings:
        """The settings, which are checked where they are stored."""
        return PublicSettings(self.step, self.floor, self.daily_queries, self.description)


class PublicSpaceOut(ResponseModel):
    """A public space."""

    owner: str = Field(description="the tenant that it belongs to")
    space: str = Field(description="its name, unique among those of the owner")
    description: str = Field(description="of the owner, for people; empty without one")
    step: float = Field(description="scores are multiples of it")
    floor: float = Field(description="the least score that is shown")
    daily_queries: int = Field(description="that each tenant may make in a day of UTC")
    created_at: datetime = Field(description="when it became public")

    @classmethod
    def of(cls, public: PublicSpace) -> PublicSpaceOut:
        """The public space as every tenant sees it."""
        return cls(**_space_fields(public))


class PublicSpacePage(ResponseModel):
    """A page of public spaces."""

    items: list[PublicSpaceOut] = Field(description="by owner and name")
    next_cursor: NextCursor


class PublicImportanceOut(ResponseModel):
    """What supports are selected by, without the note of the owner."""

    kind: ImportanceKind
    base: ImportanceBase


class PublicSpaceDetails(PublicSpaceOut):
    """A public space, with what a query has to fit."""

    num_parameters: int = Field(description="M, which an index is below")
    layout_digest: str | None = Field(description="of its layout, null without one")
    importance: PublicImportanceOut = Field(description="what its supports are selected by")
    blinding: str | None = Field(
        description="the check value of the key that its supports are blinded under, or null"
    )
    signature: SignatureSpecOut = Field(description="how signatures are made of supports")
    remaining: int = Field(description="queries that your tenant has left today")

    @classmethod
    def with_space(
        cls, public: PublicSpace, space: SpaceRecord, remaining: int
    ) -> PublicSpaceDetails:
        """The public space as a tenant sees it that is about to query it."""
        return cls(
            **_space_fields(public),
            num_parameters=space.num_parameters,
            layout_digest=space.layout_digest,
            importance=PublicImportanceOut.model_validate(space.importance),
            blinding=space.blinding,
            signature=SignatureSpecOut.model_validate(space.signature),
            remaining=remaining,
        )


class PublicNeighborOut(ResponseModel):
    model: ModelName
    score: float = Field(
        description="its similarity in steps, rounded up or down at random, the nearer step more "
        "often; the same query gets the same again"
    )


class PublicNeighborsOut(ResponseModel):
    """The models of the largest scores, ties by name."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "items": [{"model": "org/base", "score": 0.8}],
                    "step": 0.05,
                    "floor": 0.3,
                    "remaining": 999,
                    "truncated": False,
                    "degraded": False,
                }
            ]
        }
    )

    items: list[PublicNeighborOut] = Field(description="the largest scores first, ties by name")
    step: float = Field(description="scores are multiples of it")
    floor: float = Field(description="the least score that is shown")
    remaining: int = Field(description="queries that your tenant has left today")
    truncated: bool = Field(
        description="there are more models than one query compares, and others from the floor on "
        "are left out, whatever the number of items"
    )
    degraded: bool = Field(
        description="a stored support could not be read and its signature stood in"
    )

    @classmethod
    def of(cls, found: Nearest) -> PublicNeighborsOut:
        """The answer to a query."""
        settings = found.public.settings
        return cls(
            items=[PublicNeighborOut.model_validate(item) for item in found.items],
            step=settings.step,
            floor=settings.floor,
            remaining=found.remaining,
            truncated=found.truncated,
            degraded=found.degraded,
        )


def _space_fields(public: PublicSpace) -> dict[str, object]:
    return {
        "owner": public.owner,
        "space": public.space,
        "description": public.settings.description,
        "step": public.settings.step,
        "floor": public.settings.floor,
        "daily_queries": public.settings.daily_queries,
        "created_at": public.created_at,
    }
