"""``RoundLeader``: the server's part in one round of shards, over any carrier of messages."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from modelkin.errors import InvalidInput, InvalidParameter
from modelkin.federation.shards.fixed_point import least_power
from modelkin.federation.shards.roster import Roster
from modelkin.integrations.federation.shards.members import Receipt, ShardMembers
from modelkin.integrations.federation.shards.messages import (
    ShardMessage,
    named_cells,
    opened,
    piece_values,
    read,
    receipt_values,
    results_of,
    round_values,
    sent_cells,
    tag_values,
    tags_of,
)
from modelkin.integrations.federation.shards.rounds import (
    Answer,
    Ask,
    ReleaseAsk,
    SendAsk,
    ShardRound,
    Trained,
    check_examples,
)

__all__ = ["Exchange", "RoundLeader"]

log = logging.getLogger("modelkin.integrations")

Exchange = Callable[[Mapping[int, ShardMessage]], Mapping[int, ShardMessage | str]]
"""Sends each node its message; returns its answer, or the reason for none."""


class RoundLeader:
    """The server's part in one round.

    Args:
        members: the parties of all rounds, with their keys.
        roster: the round's roster.
        number: the round's number.
        exchange: sends questions that ask for no training, and returns the answers.
        present: the connected nodes.

    Attributes:
        trained: the members' replies to the training, by place.
        refused: the reasons why other replies do not count, by place.
    """

    def __init__(
        self,
        members: ShardMembers,
        roster: Roster,
        number: int,
        exchange: Exchange,
        present: Callable[[], Collection[int]],
    ) -> None:
        self._members, self._exchange, self._present = members, exchange, present
        self.roster, self.number = roster, number
        self._nodes = members.nodes
        self._roster_text = json.dumps(roster.to_json(), separators=(",", ":"))
        self._receipts: dict[int, list[Receipt]] = {}
        self.trained: dict[int, Trained] = {}
        self.refused: dict[int, str] = {}

    def node(self, place: int) -> int:
        """The node at a place of the roster."""
        return self._nodes[place]

    def place(self, node: int) -> int:
        """The place of a node in the roster."""
        return self._nodes.index(node)

    def by_node(self, reasons: Mapping[int, str]) -> dict[int, str]:
        """Map reasons by place to reasons by node."""
        return {self._nodes[place]: why for place, why in sorted(reasons.items())}

    def staleness(self, members: Collection[int]) -> dict[int, int]:
        """How many rounds late the updates of members are, by node, where they are late."""
        late = {self.node(place): self.trained[place].staleness for place in members}
        return {node: rounds for node, rounds in late.items() if rounds}

    def asked(self, node: int, values: Mapping[str, Any]) -> dict[str, Any]:
        """The values of a message to a node, with the roster and its receipts."""
        self._receipts[node] = self._members.receipts(node)
        common = {
            "roster": self._roster_text,
            "number": self.number,
            **receipt_values(self._receipts[node]),
        }
        return {**common, **values}

    def open(self, node: int, answer: ShardMessage | str) -> ShardMessage:
        """Open an answer, and note whether its node has the receipts, or has lost its key.

        Raises:
            InvalidInput: there is none, or the client refused.
        """
        if not isinstance(answer, str):
            if answer.values.get("rejoin"):
                self._members.forget(node)
            elif "refused" not in answer.values:
                self._members.forget_receipts(node, self._receipts.get(node, []))
        return opened(answer)

    def read_training(self, answer: ShardMessage, examples: object) -> Trained:
        """A member's reply to the training, as it counts.

        Raises:
            InvalidInput: it does not count.
        """
        weight, staleness = check_examples(examples), answer.values.get("staleness", 0)
        if type(staleness) is not int or staleness < 0:
            raise InvalidParameter("its staleness is no number of rounds", field="staleness")
        if not self.roster.plan.conceal:
            tags = read("its tags", lambda: tags_of(answer.values))
            if answer.values.get("sends-later"):
                return Trained(weight, tags=tags, staleness=staleness, sends_later=True)
            cells = read("its cells", lambda: sent_cells(answer))
            return Trained(weight, cells=cells, tags=tags, staleness=staleness)
        peak = answer.values.get("peak")
        if not isinstance(peak, float):
            raise InvalidParameter("it did not send its largest value", field="peak")
        least_power(peak)
        return Trained(weight, peak, staleness=staleness)

    def lead_groups(
        self, groups: Mapping[int, Collection[int]], skipped: Collection[int]
    ) -> list[tuple[int | None, ShardRound]]:
        """Average each group of nodes alone, and all other members together, under None.

        Each member is in only one sum: two sums that differ by one member would show its values.

        Args:
            groups: the nodes of each group.
            skipped: the groups whose members are averaged with the others.
        """
        places: dict[int | None, set[int]] = {
            group: {place for place in self.trained if self.node(place) in nodes}
            for group, nodes in groups.items()
            if group not in skipped
        }
        others = set(self.trained).difference(*places.values())
        if others or not places:
            places[None] = others
        total = self._members.weigh({place: t.examples for place, t in self.trained.items()})
        found = []
        for group, inside in places.items():
            trained = {place: self.trained[place] for place in sorted(inside)}
            found.append((group, ShardRound(self.roster, self.number, trained, total)))
            self.lead(found[-1][1])
        return found

    def too_few(self, server_round: int, groups: Mapping[int, Collection[int]]) -> dict[int, str]:
        """The reasons why groups are not averaged alone, which the log has as well."""
        trained, least = {self.node(place) for place in self.trained}, self.roster.plan.min_members
        counts = {group: len(trained.intersection(nodes)) for group, nodes in groups.items()}
        found = {
            group: f"{count} of its clients replied, and min_members is {least}"
            for group, count in sorted(counts.items())
            if count < least
        }
        asked = {self.node(place) for place in (*self.trained, *self.refused)}
        for group, why in found.items():
            advice = " (sample more of its clients)" if set(groups[group]) - asked else ""
            log.warning(
                "round %d: cluster %d is not averaged: %s%s", server_round, group, why, advice
            )
        return found

    def lead(self, current: ShardRound) -> None:
        """Lead a round to its end."""
        steps = current.steps()
        try:
            asks = next(steps)
            while True:
                asks = steps.send(self._answers(asks))
        except StopIteration:
            self._members.end(current)

    def _answers(self, asks: Sequence[Ask]) -> dict[int, Answer]:
        present = set(self._present())
        found: dict[int, Answer] = {}
        messages: dict[int, ShardMessage] = {}
        for ask in asks:
            node = self.node(ask.place)
            if node in present:
                messages[node] = self._message(node, ask)
            else:
                found[ask.place] = "it is not connected"
        answers = self._exchange(messages)
        for ask in asks:
            answer = answers.get(self.node(ask.place))
            if answer is not None:
                found[ask.place] = self._read(ask, answer)
        return found

    def _message(self, node: int, ask: Ask) -> ShardMessage:
        values = round_values(ask.round)
        if isinstance(ask, SendAsk):
            return ShardMessage(self.asked(node, {"step": "send", **values}))
        if isinstance(ask, ReleaseAsk):
            values |= {"step": "release", **piece_values(ask.pieces)}
            return ShardMessage(self.asked(node, values))
        values |= {"step": "combine", "release": ask.release, **tag_values(ask.tags)}
        return ShardMessage(self.asked(node, values), named_cells(ask.cells))

    def _read(self, ask: Ask, answer: ShardMessage | str) -> Answer:
        try:
            message = self.open(self.node(ask.place), answer)
            if isinstance(ask, SendAsk):
                return read("its cells", lambda: sent_cells(message))
            return read("its result", lambda: results_of(message))
        except InvalidInput as error:
            return str(error)
