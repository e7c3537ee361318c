"""Groups of tensors: those of one kind and shape.

A sample has few lines of one tensor, and enough of all tensors of a kind: ``mlp.up`` of each layer.
So these are judged together.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from math import prod

from modelkin.core.fingerprints.fingerprint import Fingerprint
from modelkin.core.fingerprints.matrices import sides
from modelkin.core.fingerprints.relations.layer_maps import layers_of
from modelkin.core.fingerprints.relations.positions import position_of

__all__ = ["Group", "groups_of", "many"]


@dataclass(frozen=True)
class Group:
    """Tensors of one kind and shape.

    Attributes:
        stack: what has the layers; empty for tensors in no layer.
        name: the kind, as in ``Position``.
        shape: of each.
        numbers: of its tensors, in the order of the fingerprint.
        is_expert: whether they are experts by their names.
    """

    stack: str
    name: str
    shape: tuple[int, ...]
    numbers: tuple[int, ...]
    is_expert: bool

    @property
    def sides(self) -> tuple[int, int]:
        """The rows and the columns of its matrices."""
        return sides(self.shape)

    @property
    def matrices(self) -> int:
        """How many each tensor has."""
        return prod(self.shape) // prod(self.sides)


def groups_of(
    fingerprint: Fingerprint, numbers: Collection[int] | None = None, together: bool = True
) -> tuple[Group, ...]:
    """The groups of the tensors that are compared.

    Args:
        fingerprint: of the checkpoint.
        numbers: the tensors that count; all by default.
        together: whether those of several layers are one group. Beside a checkpoint whose names
            tell no layers, each tensor is one.
    """
    found = defaultdict[tuple[str, str, tuple[int, ...], bool, int], list[int]](list)
    for number, tensor in enumerate(fingerprint.tensors):
        if tensor.lines and (numbers is None or number in numbers):
            place = position_of(tensor.name)
            is_expert = place.expert is not None
            apart = 0 if together else number
            found[place.stack, place.kind, tensor.shape, is_expert, apart].append(number)
    return tuple(
        Group(stack, name, shape, tuple(members), is_expert)
        for (stack, name, shape, is_expert, _), members in found.items()
    )


def many(fingerprint: Fingerprint, group: Group) -> int:
    """How many tensors of a group a layer has."""
    places = Counter(
        layer for number in group.numbers for layer in layers_of(fingerprint.tensors[number])
    )
    return max(places.values(), default=len(group.numbers))
