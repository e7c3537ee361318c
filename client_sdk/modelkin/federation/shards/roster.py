"""``Roster``: the parties of an average, their keys, and the shards that they hold.

Every party computes the same digest of it. All seeds, and what cells are sealed to, depend on that
digest, so parties of different rosters cannot mix their values.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

from modelkin.errors import InvalidParameter
from modelkin.federation.layouts import MOST_EXACT
from modelkin.federation.shards.draws import Label, draws, stream
from modelkin.federation.shards.partition import Partition
from modelkin.federation.shards.plan import CHECK_WORDS, Plan
from modelkin.federation.shards.public_keys import LOW_ORDER, key_point
from modelkin.federation.shards.thinning import Thinning

__all__ = ["Party", "Roster", "Round"]

_MAGIC: Final = b"modelkin roster 1\0"
MAX_PARTIES: Final = 2**16


@dataclass(frozen=True, slots=True)
class Party:
    """A party that takes part.

    Attributes:
        id: the party's name with the carrier: a node, a rank, a model.
        public_key: X25519, 32 bytes.
        may_aggregate: whether it may hold a shard.
        neutral: whether it aggregates alone, and has no values of its own.
    """

    id: str
    public_key: bytes
    may_aggregate: bool = True
    neutral: bool = False


@dataclass(frozen=True, slots=True)
class Round:
    """The members of one average, and their weights.

    Attributes:
        number: 1 or more; each round of a roster has its own.
        weights: the weights of each member that takes part, by its place; positive.
        attempt: 0; 1 after members were lost or refused.
        peak: R of concealed sums, a power of two that holds every member's values:
            ``least_power`` of the largest ``Member.peak``.
        roster_total: the weights of all members of the roster; None if all take part.
    """

    number: int
    weights: Mapping[int, float]
    attempt: int = 0
    peak: float | None = None
    roster_total: float | None = None

    def __post_init__(self) -> None:
        if type(self.number) is not int or not 1 <= self.number < 2**32:
            raise InvalidParameter("a round's number is 1 to 2^32 - 1", field="round")
        if not 0 <= self.attempt < 2**16:
            raise InvalidParameter("an attempt's number is 0 to 65535", field="attempt")
        for place, weight in self.weights.items():
            if not (math.isfinite(weight) and 0 < weight <= MOST_EXACT):
                raise InvalidParameter(
                    f"the weight of member {place} must be above 0 and at most 2^53, not {weight}",
                    field="weights",
                )

    @property
    def taking_part(self) -> tuple[int, ...]:
        """The members' places, ascending."""
        return tuple(sorted(self.weights))

    @property
    def total(self) -> float:
        """The sum of all weights, in float64 over ascending places."""
        return float(sum(self.weights[place] for place in self.taking_part))

    def share(self, place: int) -> float:
        """The weight of a member in this average; all shares sum to 1."""
        return self.weights[place] / self.total

    @property
    def presence(self) -> float:
        """Pi: the share of the members that take part in the weights of the whole roster."""
        return self.total / (self.roster_total or self.total)

    @property
    def digest(self) -> bytes:
        """SHA-256 of the round: masks for one round are masks for no other."""
        fields = [self.number, self.attempt, self.peak, self.roster_total]
        text = json.dumps([*fields, [[at, self.weights[at]] for at in self.taking_part]])
        return hashlib.sha256(text.encode()).digest()

    def without(self, places: Iterable[int]) -> Round:
        """The next attempt, without some members."""
        gone = set(places)
        left = {place: weight for place, weight in self.weights.items() if place not in gone}
        return replace(self, weights=left, attempt=self.attempt + 1)


@dataclass(frozen=True)
class Roster:
    """The parties in the carrier's order, each known by its place in it from 0 on.

    Args:
        plan: what they agree on.
        parties: with distinct ids.
        epoch: a new number starts all shifts again from zero, and changes no cut and no other seat.
        unseated: places of aggregators that are lost for good; others take their shards.

    Raises:
        InvalidParameter: a party cannot be right, or fewer than A may aggregate.
    """

    plan: Plan
    parties: tuple[Party, ...]
    epoch: int = 0
    unseated: tuple[int, ...] = ()
    seed: int = field(init=False)
    """The seed of every common draw: eight bytes of a digest of plan and parties."""
    digest: bytes = field(init=False)
    """SHA-256 of the roster; members log it, for comparing."""
    seats: tuple[int, ...] = field(init=False)
    """The places of the aggregators, in the order of their shards."""

    def __post_init__(self) -> None:
        _check_parties(self.parties, self.epoch, self.unseated)
        drawn = self._digest(plan=self.plan.to_json(), parties=self.to_json()["parties"])
        object.__setattr__(self, "seed", int.from_bytes(drawn[:8], "little"))
        object.__setattr__(self, "digest", self._digest(**self.to_json()))
        object.__setattr__(self, "seats", self._draw_seats())

    @staticmethod
    def _digest(**fields: Any) -> bytes:
        text = json.dumps(fields, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(_MAGIC + text.encode()).digest()

    def _draw_seats(self) -> tuple[int, ...]:
        """Seat the parties with the A lowest draws among the willing: no party chooses them."""
        willing = [place for place, party in enumerate(self.parties) if party.may_aggregate]
        left, shards = len(set(willing) - set(self.unseated)), self.plan.shards
        if left < shards:
            raise InvalidParameter(
                f"{shards} shards need as many aggregators, and {left} of {len(self.parties)} "
                f"parties may aggregate",
                field="shards",
            )
        keys = draws(stream(self.seed, Label.SEATS), len(self.parties))
        order = sorted(willing, key=lambda place: int(keys[place]))
        spare = iter([place for place in order[shards:] if place not in self.unseated])
        return tuple(next(spare) if at in self.unseated else at for at in order[:shards])

    @property
    def partition(self) -> Partition:
        """The cut into shards, fixed for the roster: else an aggregator sees all in time."""
        return Partition(self.plan.num_parameters, self.plan.shards, self.seed)

    @property
    def members(self) -> tuple[int, ...]:
        """The places of the parties that have values."""
        return tuple(place for place, party in enumerate(self.parties) if not party.neutral)

    @cached_property
    def low_order(self) -> frozenset[int]:
        """The places of parties whose keys are of low order: all others go on without them."""
        return frozenset(at for at, point in enumerate(self._points) if not point)

    @cached_property
    def _points(self) -> tuple[int, ...]:
        return tuple(key_point(party.public_key) for party in self.parties)

    def check_keys(self) -> None:
        """Check the keys that a carrier handed out; name the parties that are at fault.

        A member whose key is of low order is left out, and one that holds a shard cannot be.

        Raises:
            InvalidParameter: an aggregator's key is of low order, or two keys give one secret.
        """
        for place in self.seats:
            if place in self.low_order:
                message = f"{self.parties[place].id!r} holds a shard, and {LOW_ORDER}"
                raise InvalidParameter(message, field=f"parties[{place}].public_key")
        first: dict[int, int] = {}
        for place, point in enumerate(self._points):
            if point and first.setdefault(point, place) != place:
                one, other = self.parties[first[point]].id, self.parties[place].id
                message = f"the public keys of {one!r} and {other!r} give the same secrets"
                raise InvalidParameter(message, field=f"parties[{place}].public_key")

    def place(self, party_id: str) -> int:
        """The place of a party.

        Raises:
            InvalidParameter: it is not in the roster.
        """
        for place, party in enumerate(self.parties):
            if party.id == party_id:
                return place
        raise InvalidParameter(f"{party_id!r} is not in the roster", field="party")

    def holders(self, shard: int) -> tuple[int, ...]:
        """The places of the parties that compute a shard: one, or as many as there are replicas."""
        seats = self.seats
        return tuple(seats[(shard + i) % len(seats)] for i in range(self.plan.replicas))

    def shards_of(self, place: int) -> tuple[int, ...]:
        """The shards that a party computes."""
        return tuple(a for a in range(self.plan.shards) if place in self.holders(a))

    def piece_size(self, shard: int, piece: int) -> int:
        """How many values a shard has in a piece, before c."""
        start, stop = self.plan.stretch(piece)
        return int(self.partition.sizes(start // self.plan.shards, stop - start)[shard])

    def thinning(self, shard: int, piece: int, round_number: int, place: int) -> Thinning:
        """The draw of the values of a piece that a member sends in a round."""
        drawn_by = 0 if self.plan.masks == "one" else 1 + place
        return Thinning(
            self.piece_size(shard, piece),
            self.plan.one_in,
            stream(self.seed, Label.KEPT, round_number, drawn_by, shard),
            piece * self.plan.piece_blocks // self.plan.one_in,
        )

    def cell_count(self, shard: int, piece: int, round_number: int, place: int) -> int:
        """How many values the cell of a member has; words, where it is concealed."""
        kept = self.thinning(shard, piece, round_number, place).count
        return kept + (CHECK_WORDS if self.plan.conceal else 0)

    def result_count(self, shard: int, piece: int, round_number: int) -> int:
        """How many values the result of a piece has: all, for masks of their own; else one in c."""
        if self.plan.shifted:
            return self.piece_size(shard, piece)
        return self.thinning(shard, piece, round_number, 0).count

    def check_round(self, current: Round) -> None:
        """Check that a round's members are members here, and enough.

        Raises:
            InvalidParameter: another place, too few members, or concealed without R.
        """
        if not set(current.weights) <= set(self.members):
            raise InvalidParameter("the round has members that the roster lacks", field="weights")
        if len(current.weights) < self.plan.min_members:
            raise InvalidParameter(
                f"{len(current.weights)} members are left, and fewer than min_members="
                f"{self.plan.min_members} are not averaged",
                field="min_members",
            )
        if self.plan.conceal and current.peak is None:
            raise InvalidParameter("a concealed round needs R", field="peak")

    def to_json(self) -> dict[str, Any]:
        """The plan, the parties and the changes since they met; keys in hexadecimal."""
        return {
            "plan": self.plan.to_json(),
            "epoch": self.epoch,
            "unseated": list(self.unseated),
            "parties": [
                {
                    "id": party.id,
                    "public_key": party.public_key.hex(),
                    "may_aggregate": party.may_aggregate,
                    "neutral": party.neutral,
                }
                for party in self.parties
            ],
        }

    @classmethod
    def from_json(cls, fields: Any) -> Roster:
        """The roster of :meth:`to_json`.

        Raises:
            InvalidParameter: not an object of these fields, or their values make no roster.
        """
        try:
            parties = tuple(
                Party(
                    each["id"],
                    bytes.fromhex(each["public_key"]),
                    each["may_aggregate"],
                    each["neutral"],
                )
                for each in fields["parties"]
            )
            plan, epoch, unseated = fields["plan"], fields["epoch"], tuple(fields["unseated"])
        except (TypeError, KeyError, ValueError) as error:
            message = f"not an object with the fields of a roster: {error!r}"
            raise InvalidParameter(message, field="roster") from None
        return cls(Plan.from_json(plan), parties, epoch, unseated)


def _check_parties(parties: tuple[Party, ...], epoch: Any, unseated: tuple[Any, ...]) -> None:
    if not 1 <= len(parties) <= MAX_PARTIES:
        message = f"a roster has 1 to {MAX_PARTIES} parties, not {len(parties)}"
        raise InvalidParameter(message, field="parties")
    if type(epoch) is not int or not 0 <= epoch < 2**32:
        raise InvalidParameter("epoch must be 0 to 2^32 - 1", field="epoch")
    for place in unseated:
        if type(place) is not int or not 0 <= place < len(parties):
            raise InvalidParameter(f"{place!r} is not the place of a party", field="unseated")
    for at, party in enumerate(parties):
        if not isinstance(party.id, str) or not party.id:
            raise InvalidParameter("a party needs an id", field=f"parties[{at}].id")
        if not isinstance(party.public_key, bytes) or len(party.public_key) != 32:
            message = "a public key has 32 bytes (X25519)"
            raise InvalidParameter(message, field=f"parties[{at}].public_key")
        if not (isinstance(party.may_aggregate, bool) and isinstance(party.neutral, bool)):
            message = "may_aggregate and neutral are true or false"
            raise InvalidParameter(message, field=f"parties[{at}]")
    ids = [party.id for party in parties]
    if len(set(ids)) != len(ids):
        raise InvalidParameter("two parties have the same id", field="parties")
    keys = [party.public_key for party in parties]
    if len(set(keys)) != len(keys):
        raise InvalidParameter("two parties have the same public key", field="parties")
