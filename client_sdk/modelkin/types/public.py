"""Public spaces: spaces of other tenants that may be asked for neighbours, in steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from modelkin._moments import Moment
from modelkin._printing import Printed
from modelkin.core.importance import Importance
from modelkin.types.search import Ranking
from modelkin.types.spaces import SignatureSpec

__all__ = ["PublicNeighbor", "PublicNeighbors", "PublicSpace", "PublicSpaceInfo"]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class PublicSpace(Printed):
    """A space that every tenant may ask for neighbours.

    Attributes:
        owner: the tenant that it belongs to.
        space: the name of the space.
        description: the owner's description, for people.
        step: scores are multiples of it.
        floor: the least score that is shown.
        daily_queries: how many queries each tenant may make in a day of UTC.
        created_at: when it became public.
    """

    owner: str
    space: str
    description: str
    step: float
    floor: float
    daily_queries: int
    created_at: Moment


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class PublicSpaceInfo(PublicSpace):
    """A public space, with what a query has to fit.

    Attributes:
        num_parameters: M.
        layout_digest: the digest of the tensors that indices follow; None without a layout.
        importance: what supports are selected by.
        blinding: the check value of the key that supports are blinded under, or None.
        signature: what signatures are made with.
        remaining: queries that your tenant has left today.
    """

    num_parameters: int
    layout_digest: str | None
    importance: Importance
    blinding: str | None
    signature: SignatureSpec
    remaining: int


@dataclass(frozen=True, slots=True)
class PublicNeighbor:
    """A model of a public space.

    Attributes:
        score: the model's similarity in steps, rounded up or down at random.
    """

    model: str
    score: float


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class PublicNeighbors(Ranking[PublicNeighbor]):
    """The models of a public space with the largest scores, ties by name.

    Attributes:
        items: the models; the object itself is a sequence of them, too.
        step: scores are multiples of it.
        floor: the least score that is shown.
        remaining: queries that your tenant has left today.
        truncated: there are more models than one query compares, and others from the floor on are
            left out, whatever the number of items.
        degraded: a signature stood in for a stored support that could not be read.
    """

    _row: ClassVar[type[Any]] = PublicNeighbor
    items: tuple[PublicNeighbor, ...]
    step: float
    floor: float
    remaining: int
    truncated: bool = False
    degraded: bool = False
