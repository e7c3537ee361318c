"""The JSON that creates a space."""

from __future__ import annotations

import json
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationInfo,
    field_validator,
    model_validator,
)
from typing_extensions import TypedDict

from app.infra.http.schemas import RequestModel, Text
from app.models.spaces.stored_layouts import (
    MAX_DIMENSIONS,
    MAX_TENSOR_NAME_LENGTH,
    StoredLayout,
    layout_or_error,
)
from modelkin.core.importance import IMPORTANCE_KINDS, Importance
from modelkin.core.indices import MAX_PARAMETERS
from modelkin.core.subspaces.subspace import CONSTANT
from modelkin.errors import ModelkinError
from modelkin.types.spaces import SubspaceSpec

__all__ = ["SpaceIn"]

_MAX_PATTERNS: Final = 32
"""The most patterns of tensors to leave out."""
_MAX_STEPS: Final = 100_000_000
"""Characters of the names times those of the patterns: a worst one takes a nanosecond for each."""
_CHARACTERS_OF_A_MATCH: Final = 16
"""The cost of a match, however short it is, in characters."""


class TensorSpecIn(TypedDict):
    # A layout may have 33,000 of these, and a dict is validated in a third of a model's time.
    __pydantic_config__ = RequestModel.model_config  # type: ignore[misc]

    name: Annotated[
        str,
        Field(min_length=1, max_length=MAX_TENSOR_NAME_LENGTH, description="unique in the layout"),
    ]
    shape: Annotated[
        list[Annotated[int, Field(ge=0, le=MAX_PARAMETERS)]],
        Field(max_length=MAX_DIMENSIONS, description="its dimensions; empty of a scalar"),
    ]


class SignatureSpecIn(RequestModel):
    scheme: str | None = Field(None, description="affine32; affine64 where M > 2^32")
    num_perm: int = Field(256, ge=1, le=4096, description="h, how many minhashes")
    seed: int = Field(
        1, ge=0, le=2**32 - 1, description="of the permutations: all signatures have the same"
    )


class BandingIn(RequestModel):
    bands: int | None = Field(None, ge=1, le=4096, description="b, how many bands")
    rows: int | None = Field(None, ge=1, le=4096, description="r, minhashes each; b r <= h")
    similarity: float | None = Field(
        None, ge=0, le=1, description="instead: the least S of which 99% have to be found"
    )


class SupportSizeIn(RequestModel):
    policy: Literal["free", "fixed", "agreed"] = Field(
        description="fixed refuses larger supports; agreed answers the median of the reported K*"
    )
    k: int | None = Field(None, ge=1, description="K, where it is fixed")
    fraction: float | None = Field(None, gt=0, le=1, description="or K as a share of M")


class ImportanceIn(RequestModel):
    """A kind of importance; ``Importance.of`` checks it, and its errors say what to do."""

    kind: str = Field(
        json_schema_extra={"enum": list(IMPORTANCE_KINDS)},
        description="what supports are selected by; others cannot be compared with them",
    )
    base: Text | None = Field(
        None,
        description="delta: the digest of the weights that differences are taken from, "
        "`sha256:9f2c...`, or `name@sha256:9f2c...`",
    )
    note: Text | None = Field(None, description="for people")

    @model_validator(mode="before")
    @classmethod
    def _not_the_kind_alone(cls, given: Any) -> Any:
        """Refuse a text, and show the object that it stands for."""
        if isinstance(given, str):
            meant = json.dumps({"kind": given[:40]})
            raise ValueError(f"an importance is an object, not a text: write {meant}")
        return given

    def to_importance(self) -> Importance:
        """Return the importance.

        Raises:
            InvalidParameter: there is no such kind of importance, or the kind cannot have this base
                or note.
        """
        return Importance.of(self.kind, self.base, self.note)


class SubspaceSpecIn(RequestModel):
    features: str = Field(
        "", max_length=200, description="what a sample's features are, such as `8x8 grey /16`"
    )
    constant: float = Field(
        CONSTANT, ge=0, le=100, description="stands behind each unit sample; 0 for none"
    )
    weighting: Literal["spectrum", "flat"] = Field(
        "spectrum", description="by energy, or all directions alike"
    )
    compare: Literal["classes", "whole"] = Field(
        "classes", description="which blocks meet where a request does not say"
    )
    max_columns: int = Field(256, ge=1, le=65_535, description="the most columns of a subspace")

    def spec(self) -> SubspaceSpec:
        """The specification that the space's data subspaces share."""
        return SubspaceSpec(**self.model_dump())


_OF_SUPPORTS: Final = (
    "layout",
    "signature",
    "banding",
    "support_size",
    "importance",
    "exclude",
    "blinding",
    "ordered",
)
"""Fields that a space of data subspaces does not have."""


class SpaceIn(RequestModel):
    """An index space to create."""

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
                    "importance": {"kind": "fisher", "note": "one epoch"},
                }
            ]
        }
    )

    name: str = Field(description="unique among yours, [a-z0-9][a-z0-9._-]{0,99}")
    kind: Literal["supports", "subspaces"] = Field(
        "supports", description="what it holds of each model: a support, or a subspace of its data"
    )
    num_parameters: int | None = Field(
        None,
        ge=1,
        le=MAX_PARAMETERS,
        description="M; may be left out where there is a layout. Of data subspaces: m, features",
    )
    subspaces: SubspaceSpecIn | None = Field(
        None, description="what data subspaces share; defaults where it is left out"
    )
    layout: list[TensorSpecIn] | None = Field(
        None,
        min_length=1,
        fail_fast=True,
        description="the tensors in order; overlaps then have figures by tensor",
    )
    signature: SignatureSpecIn = Field(
        default_factory=SignatureSpecIn.model_construct,
        description="how signatures are made of supports; defaults where it is left out",
    )
    banding: BandingIn | None = Field(
        None,
        description="of the LSH buckets; left out, 64 x 4, or fewer rows where h is below 256",
    )
    support_size: SupportSizeIn | None = Field(
        None, description="how large supports are to be; free where it is left out"
    )
    importance: ImportanceIn | None = Field(
        None,
        description="what its supports are selected by: uploads that state another kind or base "
        "are refused. Left out, a new space takes any, and its answers carry a note",
    )
    exclude: list[Annotated[str, Field(min_length=1, max_length=MAX_TENSOR_NAME_LENGTH)]] = Field(
        default_factory=list,
        max_length=_MAX_PATTERNS,
        description="shell patterns of tensors of `layout` that are never trained, such as "
        "`*.running_*`: the space is of the layout without them, and M counts the rest",
    )
    blinding: str | None = Field(
        None,
        description="the check value of the key that its supports are blinded under, as the SDK's "
        "`Blinding.check` gives it; goes with `num_parameters` in place of `layout`",
    )
    ordered: bool = Field(
        False,
        description="whether its supports have the octaves of their ranks, for `measure=ordered`; "
        "of importances of gradients alone",
    )

    _stored: StoredLayout | ModelkinError | None = PrivateAttr(None)

    @model_validator(mode="after")
    def _of_its_kind(self) -> Self:
        """Refuse what only a space of the other kind has."""
        if self.kind == "supports" and self.subspaces is not None:
            raise ValueError("subspaces goes with kind subspaces: leave one of them out")
        if self.kind == "subspaces":
            given = [name for name in _OF_SUPPORTS if name in self.model_fields_set]
            if given:
                raise ValueError(f"{given[0]} is of supports: leave it out, or the kind")
        return self

    @property
    def subspace_spec(self) -> SubspaceSpec | None:
        """The specification that its data subspaces share; None for a space of supports."""
        if self.kind == "supports":
            return None
        return (self.subspaces or SubspaceSpecIn.model_construct()).spec()

    @field_validator("exclude")
    @classmethod
    def _quick_to_match(cls, exclude: list[str], info: ValidationInfo) -> list[str]:
        """The patterns, if matching them takes a small part of a second."""
        tensors = info.data.get("layout") or ()
        names = sum(len(tensor["name"]) + _CHARACTERS_OF_A_MATCH for tensor in tensors)
        patterns = sum(len(pattern) + _CHARACTERS_OF_A_MATCH for pattern in exclude)
        if names * patterns > _MAX_STEPS:
            raise ValueError(
                f"{len(exclude)} patterns take too long to match with {len(tensors)} names: use "
                f"fewer or shorter ones, or send the layout without these tensors"
            )
        return exclude

    @model_validator(mode="after")
    def _as_stored(self) -> Self:
        """Keep of a layout only what is stored: ``layout`` is None from here on.

        The thread that answers takes a text from the process that reads the body, where objects for
        33,000 tensors would hold up all others. (FastAPI validates the model once more.)
        """
        if self.layout is not None:
            self._stored = layout_or_error(self.layout, self.exclude)
            self.layout = None
        return self

    @property
    def stored_layout(self) -> StoredLayout | None:
        """The layout without the excluded tensors; None without one.

        Raises:
            InvalidLayout: its tensors make no layout.
            InvalidParameter: a pattern matches no tensor, or together the patterns match all.
        """
        if isinstance(self._stored, ModelkinError):
            raise self._stored
        return self._stored
