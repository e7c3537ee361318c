"""``NodeWeights``: how much each client counts in a mean of models, and why one counts less.

A weight is asked for each set of clients that is averaged: a cluster, or all. Only the relations of
its weights matter. A weight of 0 leaves a client out, and has a reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Literal, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from modelkin.core.sketching.signature import Signature
from modelkin.core.subspaces.subspace import Subspace
from modelkin.core.support import Support
from modelkin.errors import InvalidParameter
from modelkin.federation.additions import cover, holders, rarity
from modelkin.federation.layouts import MOST_EXACT
from modelkin.federation.learngenes.aggregate import check_weight
from modelkin.integrations.federation.cluster_means import Model

__all__ = [
    "BY_SUPPORT",
    "NodeWeights",
    "RoundMembers",
    "WeightName",
    "Weights",
    "check_weights",
    "node_weights",
]

Id = TypeVar("Id", int, str)
WeightName = Literal["examples", "equal", "cover", "rarity"]


@dataclass(frozen=True, slots=True, eq=False)
class RoundMembers(Generic[Id]):
    """What is known of the clients of a round before their models are averaged.

    Attributes:
        models: the clients' models, all of one layout.
        examples: the number of examples that each claims, unchecked.
        contents: supports or signatures at the same weights, or subspaces, of those that sent one.
        clusters: the clients of each cluster, also those that did not reply.
    """

    models: Mapping[Id, Model]
    examples: Mapping[Id, object] = field(default_factory=dict)
    contents: Mapping[Id, Support | Signature | Subspace] = field(default_factory=dict)
    clusters: Mapping[int, Sequence[Id]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Weights(Generic[Id]):
    """The weights of some clients in one mean.

    Attributes:
        values: the weight of each client, 0 or more.
        down: why a client is left out or counts less, by client; all of weight 0 are in it.
    """

    values: Mapping[Id, float]
    down: Mapping[Id, str] = field(default_factory=dict)

    @property
    def scaled(self) -> dict[Id, float]:
        """The weights with a mean of 1 over the clients that count."""
        counted = sum(weight > 0 for weight in self.values.values())
        return {member: share * counted for member, share in self.shares.items()}

    @property
    def shares(self) -> dict[Id, float]:
        """The share of each client in the mean; all are 0 where all clients are left out."""
        total = sum(self.values.values())
        return {member: weight / total if total else 0.0 for member, weight in self.values.items()}


class NodeWeights(Protocol):
    """A rule for the weights of clients."""

    def __call__(self, members: Sequence[Id], known: RoundMembers[Id], /) -> Weights[Id]:
        """The weights of these clients in their mean; each has a model in ``known``."""
        ...


def _by_examples(members: Sequence[Id], known: RoundMembers[Id], /) -> Weights[Id]:
    """FedAvg's weights: the numbers of examples that clients claim."""
    values, down = dict[Id, float](), dict[Id, str]()
    for member in members:
        try:
            values[member] = check_weight(known.examples.get(member), "its reply")
            if values[member] > MOST_EXACT:
                raise InvalidParameter(f"it claims {values[member]:g} examples, more than 2^53")
        except InvalidParameter as error:
            values[member], down[member] = 0.0, str(error)
    return Weights(values, down)


def _equal(members: Sequence[Id], _: RoundMembers[Id], /) -> Weights[Id]:
    return Weights(dict.fromkeys(members, 1.0))


@dataclass(frozen=True, slots=True)
class _ByAddition:
    """Weights by what a client adds to the others, known by their supports.

    A client that sent none has the least weight of those that did: to send none is no gain.
    """

    measure: Callable[[Sequence[npt.NDArray[np.int64]]], list[float | None]]

    def __call__(self, members: Sequence[Id], known: RoundMembers[Id], /) -> Weights[Id]:
        sent: dict[Id, Support | Signature] = {}
        for member in members:
            content = known.contents.get(member)
            if isinstance(content, Support | Signature):
                sent[member] = content
        values: dict[Id, float] = {}
        if sent:
            found = zip(sent, self.measure(holders(list(sent.values()))), strict=True)
            values = {member: value for member, value in found if value is not None}
        least = min(values.values(), default=1.0)
        down = {
            member: "none of its signature's values is the least of all: it has the least weight"
            if member in sent
            else "it sent no support that can be compared: it has the least weight"
            for member in members
            if member not in values
        }
        return Weights({member: values.get(member, least) for member in members}, down)


_RULES: Final[Mapping[str, NodeWeights]] = {
    "examples": _by_examples,
    "equal": _equal,
    "cover": _ByAddition(cover),
    "rarity": _ByAddition(rarity),
}
BY_SUPPORT: Final = ("cover", "rarity")
"""The rules that need clients' supports."""


def node_weights(weights: Any) -> NodeWeights:
    """The rule of this name: ``"examples"``, ``"equal"``, ``"cover"`` or ``"rarity"``.

    The last two are of ``modelkin.federation.additions``.

    Raises:
        InvalidParameter: there is no such rule.
    """
    if not isinstance(weights, str) or weights not in _RULES:
        names = ", ".join(map(repr, _RULES))
        raise InvalidParameter(f"weights must be one of {names}, not {weights!r}", field="weights")
    return _RULES[weights]


def check_weights(weights: Any, by: str) -> None:
    """Raise :class:`InvalidParameter` for an unknown rule, or one that lacks supports."""
    node_weights(weights)
    if by == "data" and weights in BY_SUPPORT:
        raise InvalidParameter(
            f"weights={weights!r} needs supports, and by='data' asks for none", field="weights"
        )
