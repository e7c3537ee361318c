"""The JSON of spaces in answers."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from app.infra.http.fields import CreatedAt, NextCursor
from app.infra.http.schemas import ResponseModel
from app.models.spaces.records import SpaceRecord

__all__ = [
    "ImportanceBase",
    "ImportanceKind",
    "SignatureSpecOut",
    "SizePolicy",
    "SpaceOut",
    "SpacePage",
    "SpaceSummary",
]

SizePolicy = Annotated[
    Literal["free", "fixed", "agreed"],
    Field(
        description="`free` takes supports of any size; `fixed` refuses those above K; `agreed` "
        "follows the median of reported K*"
    ),
]


class SupportSizeOut(ResponseModel):
    policy: SizePolicy
    k: int | None = Field(description="K, where it is fixed")


class TensorSpecOut(ResponseModel):
    name: str = Field(description="unique in the layout")
    shape: list[int] = Field(description="its dimensions; empty of a scalar")


class SignatureSpecOut(ResponseModel):
    scheme: str = Field(description="how minhashes are made: affine32, or affine64 where M > 2^32")
    num_perm: int = Field(description="h, how many minhashes")
    seed: int = Field(description="of the permutations: all signatures have the same")


class BandingOut(ResponseModel):
    bands: int = Field(description="b, how many bands")
    rows: int = Field(description="r, minhashes each")
    recall: dict[str, float | None] = Field(
        description="the share of the models at a similarity S that method=lsh finds, by S; with a "
        "stop-list as it was measured, null where no two models of about that S were found"
    )

    @classmethod
    def of(cls, space: SpaceRecord) -> BandingOut:
        recall = {str(s): space.recall_at(s) for s in (0.3, 0.5, 0.7, 0.9)}
        return cls(bands=space.banding.bands, rows=space.banding.rows, recall=recall)


class StopListOut(ResponseModel):
    version: int = Field(description="1 for the first; grows with every one that is begun")
    size: int = Field(description="how many indices it holds")
    share: float = Field(description="of the counted supports, how many hold each of them at least")
    models: int = Field(
        description="how many supports were counted: all that there were, up to 1,000; of more a "
        "sample of so many"
    )
    computed_at: datetime = Field(description="when supports were counted for it, in UTC")


ImportanceKind = Annotated[
    Literal["fisher", "grad_moment", "adam", "weight", "delta", "other", "unstated"],
    Field(description="unstated where the space was made without one: it takes any"),
]
ImportanceBase = Annotated[
    str | None,
    Field(
        description="delta: the digest of the weights that differences are taken from; null where "
        "none is stated"
    ),
]


class ImportanceOut(ResponseModel):
    kind: ImportanceKind
    base: ImportanceBase
    note: str | None = Field(description="for people; null without one")


class SubspaceSpecOut(ResponseModel):
    features: str = Field(description="what a sample's features are; empty where it is not said")
    constant: float = Field(description="stands behind each unit sample; 0 for none")
    weighting: Literal["spectrum", "flat"] = Field(
        description="of directions: by energy, or all alike"
    )
    compare: Literal["classes", "whole"] = Field(
        description="which blocks meet where a request does not say"
    )
    max_columns: int = Field(description="the most columns of a subspace")


class SpaceSummary(ResponseModel):
    """A space, without its layout."""

    name: str = Field(description="by which requests name it")
    kind: Literal["supports", "subspaces"] = Field(
        description="what it holds of each model: a support, or a subspace of its data"
    )
    subspaces: SubspaceSpecOut | None = Field(
        description="what its data subspaces share; null in a space of supports"
    )
    num_parameters: int = Field(description="M; of data subspaces: m, features")
    layout_digest: str | None = Field(
        description="of the names and shapes of its layout in order, null without one; uploads "
        "may carry it as `layout`"
    )
    importance: ImportanceOut = Field(description="what its supports are selected by")
    exclude: list[str] = Field(description="patterns of tensors that supports leave out")
    blinding: str | None = Field(
        description="the check value of the key that its supports are blinded under, null where "
        "they are not; uploads and queries have to carry it as `blinding`"
    )
    ordered: bool = Field(description="whether its supports have the octaves of their ranks")
    signature: SignatureSpecOut | None = Field(description="null in a space of data subspaces")
    banding: BandingOut | None = Field(description="null in a space of data subspaces")
    stop_list: StopListOut | None = Field(
        description="common indices that are left out of what is banded; null without"
    )
    support_size: SupportSizeOut | None = Field(description="null in a space of data subspaces")
    models: int = Field(description="how many models it holds")
    supports: int = Field(description="those with a support")
    signatures: int = Field(description="those that sent only a signature")
    version: int = Field(description="grows with every change inside the space")
    created_at: CreatedAt

    @classmethod
    def of(cls, space: SpaceRecord) -> SpaceSummary:
        of_supports = space.kind == "supports"
        return cls(
            name=space.name,
            kind=space.kind,
            subspaces=None
            if space.subspaces is None
            else SubspaceSpecOut.model_validate(space.subspaces),
            num_parameters=space.num_parameters,
            layout_digest=space.layout_digest,
            importance=ImportanceOut.model_validate(space.importance),
            exclude=list(space.exclude),
            blinding=space.blinding,
            ordered=space.ordered,
            signature=SignatureSpecOut.model_validate(space.signature) if of_supports else None,
            banding=BandingOut.of(space) if of_supports else None,
            stop_list=None,
            support_size=SupportSizeOut.model_validate(space.support_size) if of_supports else None,
            models=space.models,
            supports=space.supports,
            signatures=space.signatures if of_supports else 0,
            version=space.version,
            created_at=space.created_at,
        )


class SpaceOut(SpaceSummary):
    """A space."""

    layout: list[TensorSpecOut] | None = Field(description="without the excluded tensors")


class SpacePage(ResponseModel):
    items: list[SpaceSummary] = Field(description="by name")
    next_cursor: NextCursor
