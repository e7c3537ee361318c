"""Donors that are unrelated to the target: as near as two models are by chance.

Chance is measured in each tensor if both supports are counted, and else over all parameters at
once, as if they were one tensor. The latter is less than chance by tensor, so it never marks a
related model. It sets a floor of S = .145 if supports hold 5% of the parameters, and of .28 at 20%.
"""

from __future__ import annotations

from collections.abc import Sequence

from app.kinship.donors.request import RankedDonor, Target
from app.models.catalog.repositories.candidates import candidates_by_name
from app.search.comparer import Comparer
from modelkin.core.kinship.donors import is_unrelated, unrelated_floor
from modelkin.types.search import Neighbor

__all__ = ["ChanceFilter"]


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
            RankedDonor(neighbor, choice.score, choice.reason, by_chance, floor)
            for choice, neighbor, by_chance, floor in zip(choices, *related, strict=True)
        ]

    def relatedness(
        self, target: Target, neighbors: Sequence[Neighbor]
    ) -> tuple[list[Neighbor], list[bool], list[float | None]]:
        """The neighbours, with kappa where that is known, and whether each is unrelated.

        The third list is the floor on S of each, None where kappa is known.
        """
        subject, space = target.subject, target.space
        found = list(neighbors)
        if any(item.expected is None for item in found):  # else the search has found it
            found = self._comparer.with_chance(target.session, space, subject, neighbors)
        own = subject.packed.k if subject.packed is not None else None
        if own is None and subject.model is not None:
            own = subject.model.support_size
        sizes = self._sizes(target, own, [item for item in found if item.kappa is None])
        # A signature that is not stored comes without its K: that of the donor stands in.
        pairs = [
            (sizes.get(item.model, 0) if own is None else own, sizes.get(item.model, 0))
            for item in found
        ]
        m = space.num_parameters
        unrelated = [
            is_unrelated(item.similarity, item.kappa, pair, m)
            for item, pair in zip(found, pairs, strict=True)
        ]
        floors = [
            unrelated_floor(pair, m) if item.kappa is None else None
            for item, pair in zip(found, pairs, strict=True)
        ]
        return found, unrelated, floors

    def _sizes(self, target: Target, own: int | None, items: Sequence[Neighbor]) -> dict[str, int]:
        """Return the K of these models; after exact comparisons by ``S = 2 shared / (a + b)``."""
        known = {
            item.model: round(2 * item.shared_indices / item.similarity) - own
            for item in items
            if own is not None and item.shared_indices and item.similarity
        }
        names = [item.model for item in items if item.model not in known]
        found = candidates_by_name(target.session, target.space, names) if names else []
        return known | {candidate.name: candidate.support_size for candidate in found}
