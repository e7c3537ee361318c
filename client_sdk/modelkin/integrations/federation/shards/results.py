"""``HeldResults``: what the holders of each shard sent, and on which values they agree."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from modelkin.errors import InvalidInput
from modelkin.federation.shards.roster import Roster
from modelkin.federation.sharing import Combined

__all__ = ["Floats", "HeldResults", "Piece", "Results"]

Floats = npt.NDArray[np.float32]
Piece = tuple[int, int]
"""A shard, and the number of a piece in it."""

Results = dict[int, dict[Piece, Combined]]
"""The verdicts of each aggregator, by place, with its values once it sent them."""


@dataclass(slots=True, eq=False)
class HeldResults:
    """The results of a round, by holder and shard.

    Args:
        roster: the epoch's roster.
        number: the round's number.
        results: what the aggregators sent.
        lost: the reasons why aggregators gave no result, by place.

    Attributes:
        odd: the reasons against holders whose values differ from those taken, by place.
        num_bytes: the bytes of results read.
    """

    roster: Roster
    number: int
    results: Results
    lost: Mapping[int, str]
    odd: dict[int, str] = field(default_factory=dict)
    num_bytes: int = 0

    def agreed(self, shard: int) -> dict[int, Floats]:
        """The values of a shard, by piece, that most of its holders sent, equal to the bit.

        Where holders keep shifts, all have to agree: one whose shift stayed behind differs for
        good.

        Raises:
            InvalidInput: there are no such values; the message names the holders.
        """
        holders, found, reasons = self.roster.holders(shard), dict[int, dict[int, Floats]](), []
        for holder in holders:
            try:
                found[holder] = self._of(shard, holder)
            except InvalidInput as error:
                reasons.append(str(error))
        needed = len(holders) if self.roster.plan.shifted else len(holders) // 2 + 1
        for values in found.values():
            alike = [holder for holder in found if _same_bits(values, found[holder])]
            if len(alike) >= needed:
                why = f"its values of shard {shard} differ from those of {self._ids(alike)}"
                self.odd.update({holder: why for holder in found if holder not in alike})
                return values
        if not reasons or len(found) >= needed:
            reasons.append(f"its holders {self._ids(found)} sent different values")
        raise InvalidInput("; ".join(reasons))

    def _ids(self, places: Iterable[int]) -> str:
        return " and ".join(self.roster.parties[place].id for place in places)

    def _of(self, shard: int, holder: int) -> dict[int, Floats]:
        """One holder's values of a shard, by piece."""
        name, values = f"its holder {self.roster.parties[holder].id}", dict[int, Floats]()
        for piece in range(self.roster.plan.pieces):
            combined = self.results.get(holder, {}).get((shard, piece))
            if combined is None or holder in self.lost:
                raise InvalidInput(f"{name}: {self.lost.get(holder, 'no result')}")
            if combined.failed is not None or combined.values is None or combined.refused:
                raise InvalidInput(f"{name}: {combined.failed or 'it refused a member again'}")
            self.num_bytes += combined.values.nbytes
            size = self.roster.result_count(shard, piece, self.number)
            if combined.values.shape != (size,):
                raise InvalidInput(f"{name} sent {combined.values.size} values")
            if not np.isfinite(combined.values).all():
                raise InvalidInput(f"{name} sent values that are not finite")
            values[piece] = combined.values
        return values


def _same_bits(left: Mapping[int, Floats], right: Mapping[int, Floats]) -> bool:
    return all(left[piece].tobytes() == right[piece].tobytes() for piece in left)
