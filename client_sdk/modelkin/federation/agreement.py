"""``SignedSupport``: where an update is largest, and with which signs; and whether others agree.

The support of an update's absolute values shows no sign flip, so signs count here. A member's
agreement is the share of its K largest coordinates whose sign is that of most other members there,
less the share with the other sign: 1 where all agree, -1 for an update turned round. Signs drawn
by the toss of a coin give 0 on average, with a deviation of 1 / sqrt(K).

Majorities of signs: Bernstein et al., "signSGD with majority vote is communication efficient and
fault tolerant", 2019.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

from modelkin.core.selection.largest import LargestEntries
from modelkin.core.selection.rule import SelectionRule

__all__ = ["SignedSupport", "agreements", "twins"]

Id = TypeVar("Id", int, str)

_STATISTICS: Final = ("running_mean", "running_var")
"""The ends of names of running statistics, whose size says nothing of a direction."""
_LARGEST: Final = float(np.finfo(np.float32).max)
_ALIKE: Final = 0.8
"""The overlap of two signed supports from which on they are of one source, as far as one sees."""


@dataclass(frozen=True, slots=True, eq=False)
class SignedSupport:
    """The largest coordinates of an update.

    Attributes:
        indices: the coordinates, ascending, shape ``(K,)``; none where nothing changed.
        signs: the sign of each, -1 or 1, shape ``(K,)``.
        num_parameters: M.
        length: the update's Euclidean norm.
    """

    indices: npt.NDArray[np.int64]
    signs: npt.NDArray[np.int8]
    num_parameters: int
    length: float

    @classmethod
    def of(
        cls,
        model: Mapping[str, npt.NDArray[Any]],
        start: Mapping[str, npt.NDArray[Any]],
        share: float,
    ) -> SignedSupport:
        """The signed support of ``model - start``.

        Arrays of whole numbers and running statistics do not count.

        Args:
            model: finite arrays by name.
            start: the arrays that training began with, of the same layout.
            share: K as a share of M, in (0, 1].
        """
        parts = [
            (model[name].astype(np.float64) - before.astype(np.float64)).reshape(-1)
            for name, before in start.items()
            if before.dtype.kind == "f" and name.rpartition(".")[2] not in _STATISTICS
        ]
        update = np.concatenate(parts) if parts else np.zeros(0)
        update = np.clip(update, -_LARGEST, _LARGEST)
        sizes = np.abs(update).astype(np.float32)
        length = float(np.linalg.norm(update))
        if not sizes.any():
            return cls(np.empty(0, np.int64), np.empty(0, np.int8), update.size, length)
        k = SelectionRule.of(update.size, fraction=share).k
        largest = LargestEntries(update.size, k)
        largest.add(0, sizes)
        indices = largest.support(k).indices.astype(np.int64)
        return cls(indices, np.sign(update[indices]).astype(np.int8), update.size, length)


def twins(supports: Mapping[Id, SignedSupport]) -> dict[Id, set[Id]]:
    """Each member's near copies: four fifths of the largest coordinates agree.

    Takes ``n^2 K`` steps and M bytes.

    Args:
        supports: the signed supports of n members, of one M.
    """
    found: dict[Id, set[Id]] = {member: set() for member in supports}
    order = list(supports)
    dense = np.zeros(_size(supports), np.int8)
    for at, member in enumerate(order):
        own = supports[member]
        dense[own.indices] = own.signs
        for other in order[at + 1 :]:
            others = supports[other]
            agreed = int((dense[others.indices] * others.signs).sum(dtype=np.int64))
            if agreed > _ALIKE * max(own.indices.size, others.indices.size):
                found[member].add(other)
                found[other].add(member)
        dense[own.indices] = 0
    return found


def agreements(
    supports: Mapping[Id, SignedSupport],
    voters: Collection[Id],
    copies: Mapping[Id, Collection[Id]] | None = None,
) -> dict[Id, tuple[float, int]]:
    """Each member's agreement with the majority of the other voters, -1 to 1, and its K.

    A coordinate that no other voter has among its largest, or on which they are even, counts for
    neither side. The agreement of a member without any change is 0.

    Args:
        supports: the signed supports of members, of one M.
        voters: the members whose signs make the majorities.
        copies: members who do not vote about each member, as long as they are not most voters:
            else a few who send the same noise would agree with each other.
    """
    votes = np.zeros(_size(supports), np.int32)
    for member in voters:
        votes[supports[member].indices] += supports[member].signs
    found = {}
    for member, own in supports.items():
        silent = set((copies or {}).get(member, ())) & set(voters)
        silent = silent if 2 * len(silent) < len(voters) else set()
        if member in voters:
            silent.add(member)
        others = votes[own.indices]
        for each in silent:
            others -= _signs_at(own.indices, supports[each])
        agreed = int((np.sign(others) * own.signs).sum())
        found[member] = (agreed / max(own.indices.size, 1), own.indices.size)
    return found


def _size(supports: Mapping[Id, SignedSupport]) -> int:
    return max((each.num_parameters for each in supports.values()), default=0)


def _signs_at(indices: npt.NDArray[np.int64], other: SignedSupport) -> npt.NDArray[np.int8]:
    """The other's signs at these coordinates, 0 where it has none; shape of ``indices``."""
    found = np.zeros(indices.size, np.int8)
    if other.indices.size:
        at = np.minimum(np.searchsorted(other.indices, indices), other.indices.size - 1)
        has = other.indices[at] == indices
        found[has] = other.signs[at[has]]
    return found
