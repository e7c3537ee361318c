"""``ShardClient`` and ``Seat``: a client's part in averages in shards, with all its refusals.

A carrier hands over messages and the client's state, and sends the answers.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final, TypeVar

import numpy as np

from modelkin.errors import InvalidParameter, ModelkinError
from modelkin.federation.shards.fixed_point import least_power
from modelkin.federation.shards.plan import MIN_MEMBERS, Plan
from modelkin.federation.shards.roster import Party, Roster, Round
from modelkin.federation.sharing import Aggregator, Combined, Member, SentCell, new_key, public_key
from modelkin.federation.sharing.pairwise_masks import pair_secret
from modelkin.federation.sharing.sealing import check_group_secret
from modelkin.integrations.federation.shards.client_state import KeptResults, ShardState
from modelkin.integrations.federation.shards.kept_update import KeptUpdate, check_max_staleness
from modelkin.integrations.federation.shards.messages import (
    ShardMessage,
    cells_to_combine,
    named_sent_cells,
    party_values,
    pieces_of,
    read,
    receipts_of,
    results_message,
    round_of,
    tag_values,
    tags_of,
)
from modelkin.integrations.federation.shards.results import Piece

__all__ = ["Seat", "ShardClient"]

log = logging.getLogger("modelkin.integrations")

_STATE: Final = {Member: "modelkin-member", Aggregator: "modelkin-aggregator"}
"""The names of the groups of arrays in the client's state."""

_STALE: Final = "this client has no key of the roster"

Seated = TypeVar("Seated", Member, Aggregator)


class ShardClient:
    """What a client demands of averages, and its answers.

    Args:
        group_secret: 16 bytes or more that all clients know, and the server does not.
        may_aggregate: whether this client may hold a shard.
        min_members: the least number of members of a plan, a roster and a round.
        conceal: whether a plan without pairwise masks is refused.
        max_staleness: the most rounds that an update may be late; see :class:`KeptUpdate`.
        app: the name of what the users configure, for messages.

    Raises:
        InvalidParameter: the secret is too short, or another argument is out of its range.
    """

    def __init__(
        self,
        group_secret: bytes | None = None,
        *,
        may_aggregate: bool = True,
        min_members: int = MIN_MEMBERS,
        conceal: bool = True,
        max_staleness: int = 0,
        app: str = "ShardClient",
    ) -> None:
        self._group_secret = check_group_secret(group_secret)
        self.max_staleness = check_max_staleness(max_staleness)
        self._may_aggregate = may_aggregate
        Plan(num_parameters=1, min_members=min_members, conceal=conceal)  # checks both
        if min_members < 2:
            raise InvalidParameter(
                f"min_members must be 2 or more, not {min_members!r}: an average of one client "
                f"is its model",
                field="min_members",
            )
        self._floor = _Floor(app, min_members, conceal)

    def join(self, name: str, state: ShardState, *, neutral: bool = False) -> ShardMessage:
        """The answer to a question to join; makes a key where there is none.

        Args:
            name: what the server knows the client by.
            state: the client's state.
            neutral: whether the client aggregates alone, and never trains.
        """
        own = state.values
        if not own:
            own.update({"private-key": new_key(), "last-round": 0})
        key = public_key(bytes(own["private-key"]))
        party = Party(name, key, self._may_aggregate or neutral, neutral)
        return ShardMessage(party_values(party, int(own["last-round"])))

    def seat(self, asked: Mapping[str, Any], name: str, state: ShardState) -> Seat:
        """The client's place in the roster of a message, once nothing is wrong with it.

        Raises:
            ModelkinError: the client refuses the message.
        """
        kept = KeptUpdate(state, self.max_staleness)
        return Seat(asked, name, state, kept, self._group_secret, self._floor)

    def answer(self, message: ShardMessage, name: str, state: ShardState) -> ShardMessage:
        """The answer to a message that asks for no training, and not to join.

        Raises:
            ModelkinError: the client refuses the message.
        """
        asked = message.values
        seat, step = self.seat(asked, name, state), asked.get("step")
        current = read("the round", lambda: round_of(asked))
        self._floor.check_members("round", len(current.weights))
        if step == "send":
            return ShardMessage({}, named_sent_cells(seat.send(current)))
        if step == "combine":
            cells = read("the cells", lambda: cells_to_combine(message))
            wrong = seat.wrong_weights(current, read("the tags", lambda: tags_of(asked)))
            found = seat.combine(cells, current, wrong, release=bool(asked.get("release")))
            return results_message(found)
        if step == "release":
            pieces = read("the pieces", lambda: pieces_of(asked))
            return results_message(seat.results.take(pieces, current))
        raise InvalidParameter(f"there is no step {step!r}", field="step")

    @staticmethod
    def refusal(error: ModelkinError, state: ShardState) -> ShardMessage:
        """The answer to a message that is refused; asks to join again where the key is lost."""
        log.warning("the server's message is refused: %s", error)
        lost = not state.values or str(error) == _STALE
        return ShardMessage({"refused": str(error), **({"rejoin": True} if lost else {})})


@dataclass(frozen=True, slots=True)
class _Floor:
    """The least that a client demands of an average."""

    app: str
    min_members: int
    conceal: bool

    def check(self, roster: Roster) -> None:
        """Refuse a roster of too few members, and a plan that allows less than this client."""
        plan = roster.plan
        if plan.min_members < self.min_members:
            raise InvalidParameter(
                f"the server's plan averages {plan.min_members} members or more, and this client "
                f"{self.min_members} or more: {self.app}(min_members=...) of the app says so",
                field="min_members",
            )
        if self.conceal and not plan.conceal:
            raise InvalidParameter(
                "the server's plan has conceal=False, and this client sends nothing that is not "
                f"concealed: {self.app}(conceal=False) in the app allows it",
                field="conceal",
            )
        self.check_members("roster", len(roster.members))

    def check_members(self, what: str, count: int) -> None:
        """Refuse a roster or a round of too few members."""
        if count < self.min_members:
            raise InvalidParameter(
                f"the {what} has {count} members, and this client averages {self.min_members} or "
                f"more: {self.app}(min_members=...) of the app says so",
                field="min_members",
            )


class Seat:
    """A client's place in the roster of one message, with the client's state."""

    def __init__(
        self,
        asked: Mapping[str, Any],
        name: str,
        state: ShardState,
        kept: KeptUpdate,
        secret: bytes | None,
        floor: _Floor,
    ) -> None:
        if not state.values:
            raise InvalidParameter(_STALE, field="private_key")
        self._own, self._state, self._secret = state.values, state, secret
        self.results, self._kept = KeptResults(state), kept
        self._roster = read("roster", lambda: _roster_of(str(asked["roster"])))
        self._place = self._roster.place(name)
        self._key: bytes = self._own["private-key"]
        if self._roster.parties[self._place].public_key != public_key(self._key):
            raise InvalidParameter(_STALE, field="private_key")
        self._roster.check_keys()
        self._number: int = read("number", lambda: int(asked["number"]))
        self.weighted_by = str(asked.get("weighted-by", ""))
        self._check_plan(floor)
        for receipt in read("receipts", lambda: receipts_of(asked)):
            self._settle(receipt.digest, receipt.round, receipt.shards, receipt.held)

    def _check_plan(self, floor: _Floor) -> None:
        """Refuse another plan than the run's first, and begin with no shifts in a new epoch."""
        plan, digest = json.dumps(self._roster.plan.to_json()), self._roster.digest.hex()
        if self._own.get("plan", plan) != plan:
            raise InvalidParameter("the plan changed during the run", field="plan")
        floor.check(self._roster)
        self._own["plan"] = plan
        if self._own.get("digest") != digest:
            log.info("the roster of epoch %d is %s", self._roster.epoch, digest)
            for name in _STATE.values():
                self._state.drop(name)
            self._kept.renew()
            self._own["digest"] = digest

    def late(self, model: str) -> ShardMessage | None:
        """The answer to a training message by an update of an earlier round, in place of training.

        Args:
            model: what the message's model is, as it was told to :meth:`trained`.

        Returns:
            The answer; None if the client has to train, since no update was late, or not one that
            still counts.
        """
        if not self._kept.offer(self._number, model):
            return None
        return self._offered(self._restore(Member).peak(self._kept.values))

    def trained(self, update: Any, examples: int, model: str = "") -> ShardMessage:
        """The answer to a training message, once the client has trained.

        Args:
            update: the trained values minus the received ones, shape ``(M,)``.
            examples: the client's weight.
            model: what the update can be added to, if it is late.
        """
        if not self.conceals and not self._kept.may_be_late:
            tags = tag_values(self.tags(examples))
            return ShardMessage(tags, named_sent_cells(self.plain_cells(update)))
        peak = self._restore(Member).peak(update)
        self._kept.keep(update, examples, self._number, model)
        return self._offered(peak)

    def _offered(self, peak: float) -> ShardMessage:
        """The answer that offers the kept update, whose cells the server asks for in time."""
        staleness = self._kept.staleness
        said: dict[str, Any] = {"staleness": staleness} if staleness else {}
        if self.conceals:
            return ShardMessage({**said, "peak": least_power(peak)})
        tags = tag_values(self.tags(self._kept.examples))
        return ShardMessage({**said, **tags, "sends-later": True})

    def check_new(self) -> None:
        """Check that this round is later than all before.

        Raises:
            InvalidParameter: an earlier round had these masks, and two updates under the same
                masks could be read.
        """
        if self._number <= int(self._own["last-round"]):
            raise InvalidParameter(
                f"round {self._number} is not after the last one that was trained", field="number"
            )
        self._own["last-round"] = self._number

    @property
    def conceals(self) -> bool:
        """Whether cells are sent later, once the members are fixed."""
        return self._roster.plan.conceal

    def plain_cells(self, update: Any) -> list[SentCell]:
        """The cells of an update that are not concealed."""
        member = self._restore(Member)
        everybody = Round(self._number, dict.fromkeys(self._roster.members, 1.0))
        cells = list(member.cells(update, everybody))
        self._keep(member)
        return cells

    def send(self, current: Round) -> list[SentCell]:
        """The cells of the update that was offered in this round."""
        update = self._kept.take(current.number, current.weights.get(self._place))
        if not self.conceals:
            return self.plain_cells(update)
        member = self._restore(Member)
        cells = list(member.cells(update, current))
        self._keep(member)
        return cells

    def tags(self, examples: int) -> dict[int, bytes]:
        """Proofs for each aggregator, by place, that these examples are this client's.

        If a server chose the weights, one member could be nearly the whole average. In concealed
        rounds, all members mask for the same weights, and each compares its own.
        """
        holders = sorted({*self._roster.seats})
        return {at: self._tag(at, self._number, self._place, at, examples) for at in holders}

    def wrong_weights(self, current: Round, tags: Mapping[int, bytes]) -> dict[int, str]:
        """The members whose weights are not those they sent, in a round that is not concealed."""
        self._roster.check_round(current)
        if self.conceals:
            return {}
        number, own = current.number, self._place
        return {
            place: "the round has other examples of it than it sent"
            for place, weight in current.weights.items()
            if place not in self._roster.low_order  # which it is refused for
            and tags.get(place) != self._tag(place, number, place, own, int(weight))
        }

    def _tag(self, other: int, number: int, member: int, holder: int, examples: int) -> bytes:
        """A code that only a member and a holder can compute; ``other`` is not this client."""
        secret = pair_secret(self._key, self._roster.parties[other].public_key)
        numbers = struct.pack("<4Q", number, member, holder, examples)
        group = hashlib.sha256(self._secret or b"").digest()
        return hmac.digest(secret, b"examples" + self._roster.digest + numbers + group, "sha256")

    def combine(
        self,
        cells: Mapping[Piece, Mapping[int, bytes]],
        current: Round,
        wrong: dict[int, str],
        *,
        release: bool,
    ) -> dict[Piece, Combined]:
        """Combine shards that this client holds; return verdicts, and results if ``release``."""
        if wrong:
            return {piece: Combined(None, wrong) for piece in cells}
        aggregator = self._restore(Aggregator)
        found = {
            (shard, piece): aggregator.combine(shard, piece, members, current)
            for (shard, piece), members in cells.items()
        }
        self._keep(aggregator)
        if release:
            self.results.send(current)
            return found
        self.results.keep(found, current)
        return {piece: replace(combined, values=None) for piece, combined in found.items()}

    def _settle(
        self, digest: str, number: int, shards: tuple[int, ...], held: tuple[int, ...]
    ) -> None:
        if digest != self._own["digest"]:
            return
        if self._state.arrays(_STATE[Member]):
            member = self._restore(Member)
            member.settle(number, shards)
            self._keep(member)
        if self._state.arrays(_STATE[Aggregator]):
            aggregator = self._restore(Aggregator)
            aggregator.settle(number, held)
            self._keep(aggregator)

    def _restore(self, kind: type[Seated]) -> Seated:
        party = kind(self._roster, self._place, self._key, group_secret=self._secret)
        party.restore(dict(self._state.arrays(_STATE[kind])))
        return party

    def _keep(self, party: Member | Aggregator) -> None:
        arrays = {name: np.asarray(array) for name, array in party.state().items()}
        if arrays:
            self._state.drop(_STATE[type(party)])
            self._state.add(_STATE[type(party)], arrays)


@lru_cache(maxsize=16)
def _roster_of(text: str) -> Roster:
    """The roster of a message; cached, since simulations read the same roster for each client."""
    return Roster.from_json(json.loads(text))
