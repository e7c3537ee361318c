"""``ShardMembers``: the parties that average in shards, from round to round, at their server.

The server makes the roster, replaces aggregators that are lost for good, and keeps the receipts of
each party's rounds until an answer shows that the party has them.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from modelkin.errors import InvalidParameter
from modelkin.federation.shards.plan import Plan
from modelkin.federation.shards.public_keys import key_point
from modelkin.federation.shards.roster import Party, Roster
from modelkin.integrations.federation.shards.rounds import ShardRound

__all__ = ["LOST_AFTER", "Receipt", "ShardMembers"]

log = logging.getLogger("modelkin.integrations")

LOST_AFTER: Final = 3
"""Rounds in a row without an aggregator, after which another one takes its shard."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """The end of a round for one party.

    Attributes:
        round: the round's number.
        digest: the roster's digest, in hexadecimal.
        shards: the shards that changed, if the party's values counted.
        held: the shards that changed among those that the party computes.
    """

    round: int
    digest: str
    shards: tuple[int, ...]
    held: tuple[int, ...]


class ShardMembers:
    """The parties of all rounds.

    Args:
        plan: M, A, c and all else that the parties agree on, for all rounds.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._parties: dict[int, Party] = {}
        self._points: dict[int, int] = {}
        self._stale: set[int] = set()
        self._roster: Roster | None = None
        self._nodes: tuple[int, ...] = ()
        self._away: Counter[int] = Counter()
        self._silent: dict[int, set[int]] = {}
        self._receipts: dict[int, list[Receipt]] = {}
        self._weights: dict[int, float] = {}
        self._weights_changed = False
        self._last_round = 0

    def has(self, node: int) -> bool:
        """Whether a node has joined, with a key that it still has."""
        return node in self._parties and node not in self._stale

    def is_neutral(self, node: int) -> bool:
        """Whether a node only aggregates."""
        return node in self._parties and self._parties[node].neutral

    def join(self, node: int, party: Party, last_round: int = 0) -> None:
        """Add a node; the next roster has it.

        Args:
            node: the node's number with the carrier, which orders the roster.
            party: the party, with its key.
            last_round: the last round that the node took part in, with any server.

        Raises:
            InvalidParameter: another node has the key, or one with the same secrets.
        """
        point = key_point(party.public_key)
        for other, known in self._points.items():
            if known == point and other != node:
                message = f"its public key gives the same secrets as that of node {other}"
                raise InvalidParameter(message, field="public-key")
        self._parties[node], self._points[node] = party, point
        self._stale.discard(node)
        self._last_round = max(self._last_round, last_round)

    def forget(self, node: int) -> None:
        """Let a node that lost its key join again."""
        self._stale.add(node)

    @property
    def nodes(self) -> tuple[int, ...]:
        """The nodes of the roster, by place."""
        return self._nodes

    def begin(self, present: Collection[int]) -> tuple[Roster, int]:
        """Begin a round; return its roster and its unique number.

        Args:
            present: the connected nodes.

        Raises:
            InvalidParameter: too few nodes may aggregate.
        """
        for node in self._parties:
            self._away[node] = 0 if node in present else self._away[node] + 1
        nodes = tuple(sorted(self._parties))
        gone = [
            max(self._away[node], len(self._silent.get(node, ()))) >= LOST_AFTER for node in nodes
        ]
        unseated = {place for place, lost in enumerate(gone) if lost}
        parties = tuple(self._parties[node] for node in nodes)
        old = self._roster
        if old is None or old.parties != parties:
            epoch = 0 if old is None else old.epoch + 1
            self._nodes, self._weights = nodes, {}
            self._take(_first_that_seats(self.plan, parties, epoch, [unseated, set()]))
        elif unseated & set(old.seats) or (self._weights_changed and self.plan.shifted):
            before = set(old.unseated)
            choices = [before | unseated, before]
            new = _first_that_seats(self.plan, parties, old.epoch + 1, choices)
            if new.unseated != old.unseated or self._weights_changed:
                self._take(new)
        self._last_round += 1
        return self._current, self._last_round

    @property
    def _current(self) -> Roster:
        assert self._roster is not None
        return self._roster

    def _take(self, roster: Roster) -> None:
        self._roster, self._receipts, self._weights_changed = roster, {}, False
        log.info("the roster of epoch %d is %s", roster.epoch, roster.digest.hex())

    def weigh(self, examples: Mapping[int, int]) -> float | None:
        """Note the members' weights, by place; return the roster's weight, if shifts need it.

        Weights that change begin a new epoch with the next round.
        """
        if not self.plan.shifted:
            return None
        known = self._weights
        if known and any(known.get(place) != weight for place, weight in examples.items()):
            self._weights_changed = True
        self._weights.update(examples)
        return float(sum(self._weights[place] for place in sorted(self._weights)))

    def end(self, done: ShardRound) -> None:
        """End a round: note missing results, and make the receipts of all parties."""
        roster, changed = done.roster, tuple(sorted(done.values))
        for at in roster.seats:
            node = self._nodes[at]
            if at in done.lost:
                self._silent.setdefault(node, set()).add(done.number)
            elif done.values:
                self._silent.pop(node, None)
        if not self.plan.shifted:
            return
        for at, node in enumerate(self._nodes):
            counted = changed if at in done.members else ()
            held = tuple(sorted(set(changed) & set(roster.shards_of(at))))
            if counted or held:  # else nothing moves, and the next round replaces the receipts
                receipt = Receipt(done.number, roster.digest.hex(), counted, held)
                self._receipts.setdefault(node, []).append(receipt)

    def receipts(self, node: int) -> list[Receipt]:
        """The receipts to send to a node with its next message."""
        return list(self._receipts.get(node, ()))

    def forget_receipts(self, node: int, receipts: list[Receipt]) -> None:
        """Forget receipts that a node answered to."""
        self._receipts[node] = [r for r in self._receipts.get(node, ()) if r not in receipts]


def _first_that_seats(
    plan: Plan, parties: tuple[Party, ...], epoch: int, choices: Sequence[set[int]]
) -> Roster:
    """The roster without the first of these sets of aggregators that leaves enough parties."""
    *wanted, least = choices
    for unseated in wanted:
        try:
            return Roster(plan, parties, epoch, tuple(sorted(unseated)))
        except InvalidParameter as error:
            log.warning("no other node can replace a lost aggregator: %s", error)
    return Roster(plan, parties, epoch, tuple(sorted(least)))
