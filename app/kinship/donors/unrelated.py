"""Donors that are unrelated to the target: as near as two models are by chance.

Chance is measured in each tensor if both supports are counted, and else over all parameters at
once, as if they were one tensor. The latter is less than chance by tensor, so it never marks a
related model. It sets a floor of S = .145 if supports hold 5% of the parameters, and of .28 at 20%.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from app.kinship.donors.request import RankedDonor, Target
from app.models.catalog.repositories.candidates import candidates_by_name
from app.search.comparer import Comparer
from modelkin.core.kinship.donors import unrelated_floor
from modelkin.core.kinship.nearness import Nearness
from modelkin.types.search import Neighbor

__all__ = ["ChanceFilter", "Relatedness"]


@dataclass(frozen=True, slots=True)
class Relatedness:
    """A neighbour of the target, compared with chance.

    Attributes:
        neighbor: the neighbour, with kappa where that is known.
        unrelated: whether chance alone would make it as near.
        floor: the S below which it is unrelated, 0 to 1; None where P decides.
        log10_p: the decimal logarithm of the P of so much between unrelated models; None where
            kappa is unknown.
    """

    neighbor: Neighbor
    unrelated: bool
    floor: float | None
    log10_p: float | None


class ChanceFilter:
    """Marks donors that chance alone would make as near.

    Args:
        comparer: knows the chance by tensor.
    """

    def __init__(self, comparer: Comparer) -> None:
        self._comparer = comparer

    def mark(self, target: Target, choices: Sequence[RankedDonor]) -> list[RankedDonor]:
        """Return the choices with ``unrelated`` set, and with kappa where it is known."""
        near = [choice.neighbor for choice in choices]
        related = self.relatedness(target, near)
        return [
            RankedDonor(
                each.neighbor,
                choice.score,
                choice.reason,
                each.unrelated,
                each.floor,
                each.log10_p,
            )
            for choice, each in zip(choices, related, strict=True)
        ]

    def relatedness(self, target: Target, neighbors: Sequence[Neighbor]) -> list[Relatedness]:
        """Compare neighbours of the target with chance; the result has their order."""
        subject, space = target.subject, target.space
        found = list(neighbors)
        if any(item.expected is None for item in found):  # else the search has found it
            found = self._comparer.with_chance(target.session, space, subject, neighbors)
        own = subject.packed.k if subject.packed is not None else None
        if own is None and subject.model is not None:
            own = subject.model.support_size
        sizes = self._sizes(target, own, found)
        # A signature that is not stored comes without its K: that of the donor stands in.
        pairs = [
            (sizes.get(item.model, 0) if own is None else own, sizes.get(item.model, 0))
            for item in found
        ]
        m, models = space.num_parameters, target.neighborhood.models
        return [
            _relatedness(item, pair, m, models) for item, pair in zip(found, pairs, strict=True)
        ]

    def _sizes(self, target: Target, own: int | None, items: Sequence[Neighbor]) -> dict[str, int]:
        """Return the K of these models; after exact comparisons by ``S = 2 shared / (a + b)``."""
        known = {
            item.model: size
            for item in items
            if own is not None and item.shared_indices and item.similarity
            if (size := round(2 * item.shared_indices / item.similarity) - own) > 0
        }
        names = [item.model for item in items if item.model not in known]
        found = candidates_by_name(target.session, target.space, names) if names else []
        return known | {candidate.name: candidate.support_size for candidate in found}


def _relatedness(
    item: Neighbor, sizes: tuple[int, int], num_parameters: int, models: int
) -> Relatedness:
    """Compare a neighbour, one of so many models, with chance."""
    near = Nearness.of(
        item.similarity,
        item.standard_error,
        item.expected,
        sizes,
        num_parameters,
        models,
        item.shared_indices,
    )
    floor = unrelated_floor(sizes, num_parameters) if near.log10_p is None else None
    return Relatedness(item, near.unrelated, floor, near.log10_p)
