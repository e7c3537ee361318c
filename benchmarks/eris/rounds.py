"""Many rounds of averages in shards at the speed of arrays, with the bits of the protocol.

``modelkin.federation.sharing`` computes cell by cell, sealed and opened again. This module computes
all members at once, by the same rosters, draws and rules; the tests compare the two. It computes
what the protocol does not offer, too, for comparison: thinning by own masks without shifts, and
shifts that move without receipts.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import numpy.typing as npt

from modelkin.federation.shards.combine import mean
from modelkin.federation.shards.plan import Plan
from modelkin.federation.shards.roster import Party, Roster, Round
from modelkin.federation.shards.shifts import gamma
from modelkin.federation.shards.thinning import omega

__all__ = ["Rounds", "plain_roster"]

Floats = npt.NDArray[np.float32]
Places = npt.NDArray[np.int64]


def plain_roster(members: int, plan: Plan) -> Roster:
    """A roster of members whose keys are never used."""
    keys = (place.to_bytes(32, "big") for place in range(1, members + 1))
    return Roster(plan, tuple(Party(f"m{at:04d}", key) for at, key in enumerate(keys)))


class Rounds:
    """The rounds of one roster, in one piece.

    Args:
        roster: whose plan is not concealed; concealed sums are the same but for their last bits.
        shift: whether own masks keep values of differences to a shift.
        receipts: whether shifts wait for the result; without, they move on lost shards too.
    """

    def __init__(self, roster: Roster, *, shift: bool = True, receipts: bool = True) -> None:
        plan = roster.plan
        self._roster, self._shift, self._receipts = roster, shift, receipts
        self._shards = [roster.partition.indices(shard) for shard in range(plan.shards)]
        self.member_shifts = np.zeros((len(roster.parties), plan.num_parameters), np.float32)
        self.shift = np.zeros(plan.num_parameters, np.float32)
        self.sent: dict[int, tuple[Places, Floats]] = {}
        """The coordinates and values that each member sent in the last round of thinned ones."""
        self._gamma = np.float32(gamma(omega(plan.one_in)))

    def mean(self, updates: Floats, current: Round, lost: Collection[int] = ()) -> Floats:
        """The average update, zero where a shard is lost.

        Args:
            updates: of all members, shape ``(n, M)``.
            current: the round.
            lost: shards whose results do not arrive.
        """
        gone = np.zeros(updates.shape[1], np.bool_)
        for shard in lost:
            gone[self._shards[shard]] = True
        plan = self._roster.plan
        if plan.one_in == 1:
            rows = [updates[place] for place in current.taking_part]
            result = mean(rows, [current.weights[place] for place in current.taking_part])
        elif plan.masks == "one":
            result = self._one_mask(updates, current)
        else:
            result = self._own_masks(updates, current, gone)
        result[gone] = 0
        return result

    def _one_mask(self, updates: Floats, current: Round) -> Floats:
        at, factor = self._kept(current, 0), np.float32(self._roster.plan.one_in)
        self.sent = {place: (at, updates[place, at] * factor) for place in current.taking_part}
        rows = [values for _, values in self.sent.values()]
        result = np.zeros(updates.shape[1], np.float32)
        result[at] = mean(rows, [current.weights[place] for place in current.taking_part])
        return result

    def _own_masks(self, updates: Floats, current: Round, gone: npt.NDArray[np.bool_]) -> Floats:
        factor, self.sent = np.float32(self._roster.plan.one_in), {}
        summed = np.zeros(updates.shape[1])
        for place in current.taking_part:
            at = self._kept(current, place)
            base = self.member_shifts[place, at] if self._shift else np.float32(0)
            values = (updates[place, at] - base) * factor
            summed[at] += values.astype(np.float64) * current.weights[place]
            self.sent[place] = at, values
        summed /= current.total
        if not self._shift:
            return summed.astype(np.float32)
        result: Floats = (summed + self.shift).astype(np.float32)
        self._move(summed, current.presence, gone)
        return result

    def _move(
        self, summed: npt.NDArray[np.float64], presence: float, gone: npt.NDArray[np.bool_]
    ) -> None:
        for place, (at, values) in self.sent.items():
            moved = self._gamma * values
            if self._receipts:
                moved = np.where(gone[at], np.float32(0), moved)
            self.member_shifts[place, at] += moved
        factor = gamma(omega(self._roster.plan.one_in)) * presence
        self.shift += np.where(gone, np.float32(0), (factor * summed).astype(np.float32))

    def _kept(self, current: Round, place: int) -> Places:
        """The coordinates that a member sends, over all shards."""
        found: Sequence[Places] = [
            indices[self._roster.thinning(shard, 0, current.number, place).positions]
            for shard, indices in enumerate(self._shards)
        ]
        return np.concatenate(found)
