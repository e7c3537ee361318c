"""``ShardMod``: a client's part in averages in shards, around an app that only trains."""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final, TypeVar

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict

from modelkin.errors import InvalidParameter, ModelkinError
from modelkin.federation.shards.fixed_point import least_power
from modelkin.federation.shards.plan import MIN_MEMBERS, Plan
from modelkin.federation.shards.roster import Party, Roster, Round
from modelkin.federation.sharing import Aggregator, Combined, Member, SentCell, new_key, public_key
from modelkin.federation.sharing.pairwise_masks import pair_secret
from modelkin.federation.sharing.sealing import check_group_secret
from modelkin.integrations.federation.shards.results import Piece
from modelkin.integrations.federation.shards.rounds import check_examples
from modelkin.integrations.flower import _arrays
from modelkin.integrations.flower._grids import RECORD as QUESTIONS
from modelkin.integrations.flower._grids import is_ask
from modelkin.integrations.flower.learngenes.mod import RECORD as LEARNGENE
from modelkin.integrations.flower.mixing import COMMON
from modelkin.integrations.flower.shards.records import (
    CELLS,
    RECORD,
    cells_to_combine,
    party_values,
    pieces_of,
    read,
    receipts_of,
    results_record,
    round_of,
    sent_record,
    tag_values,
    tags_of,
)
from modelkin.integrations.flower.shards.results import ShardResults

__all__ = ["ShardMod"]

log = logging.getLogger("modelkin.integrations")

NEUTRAL: Final = "modelkin-neutral"
"""The key in the node's configuration: 1 for a node that aggregates and never trains."""

_DATA_MOD: Final = (
    "DataMod is behind ShardMod or missing: the order is "
    "mods=[DataMod(...), ShardMod(), LearngeneMod(...)]"
)

_UPDATE: Final = "modelkin-update"
_STATE: Final = {Member: "modelkin-member", Aggregator: "modelkin-aggregator"}
"""The names of records in the client's state, which outlasts the process of a message."""

Next = Callable[[Message, Context], Message]
Seated = TypeVar("Seated", Member, Aggregator)


class ShardMod:
    """A mod that seals a client's update, and combines the shards that the client holds.

        app = ClientApp(mods=[ShardMod(), LocalDpMod(...)])

    ``DataMod`` and ``SupportMod`` come before ``ShardMod``, and all other mods behind it: it takes
    the reply that they made. No arrays leave the client in the clear: a training message of a
    server without ``ShardedStrategy`` is refused, as is another plan in the same run. Each client
    sets its own least number of members, since an average of one member is that member's model. The
    log has the roster's digest, which is the same at all members.

    Args:
        group_secret: 16 bytes or more that all clients know, and the server does not. Without it,
            a server that seats its own clients as aggregators can open cells sealed to them.
        may_aggregate: whether this client may hold a shard.
        min_members: the least number of members of a plan, a roster and a round, whatever the
            server chose.
        conceal: whether a plan without pairwise masks is refused.

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
    ) -> None:
        self._group_secret = check_group_secret(group_secret)
        self._may_aggregate = may_aggregate
        Plan(num_parameters=1, min_members=min_members, conceal=conceal)  # checks both
        self._floor = _Floor(min_members, conceal)

    def __call__(self, msg: Message, ctxt: Context, call_next: Next) -> Message:
        """Answer a message of the rounds of shards; let other messages pass."""
        if msg.metadata.message_type.partition(".")[0] != "train":
            return call_next(msg, ctxt)
        asked = msg.content.config_records.get(RECORD)
        if is_ask(msg):
            log.warning("no subspace is sent: %s", _DATA_MOD)
            refused = RecordDict({QUESTIONS: ConfigRecord({"refused": _DATA_MOD})})
            return Message(refused, reply_to=msg)
        try:
            if asked is None:
                raise InvalidParameter(
                    "ShardMod sends no arrays in the clear: the server needs ShardedStrategy",
                    field="strategy",
                )
            return self._answer(msg, asked, ctxt, call_next)
        except ModelkinError as error:
            log.warning("the server's message is refused: %s", error)
            lost = not isinstance(ctxt.state.get(RECORD), ConfigRecord) or _is_stale(error)
            return _reply(msg, {"refused": str(error), **({"rejoin": True} if lost else {})})

    def _answer(self, msg: Message, asked: ConfigRecord, ctxt: Context, app: Next) -> Message:
        if asked.get("step") == "join":
            return _reply(msg, self._join(ctxt))
        seat = _Seat(asked, ctxt, self._group_secret, self._floor)
        if asked.get("step") == "train":
            return self._train(msg, seat, ctxt, app)
        current = read("the round", lambda: round_of(asked))
        self._floor.check_members("round", len(current.weights))
        if asked.get("step") == "send":
            sent = RecordDict({RECORD: ConfigRecord(), CELLS: sent_record(seat.send(current))})
            return Message(sent, reply_to=msg)
        if asked.get("step") == "combine":
            cells = read("the cells", lambda: cells_to_combine(msg.content))
            wrong = seat.wrong_weights(current, read("the tags", lambda: tags_of(asked)))
            found = seat.combine(cells, current, wrong, release=bool(asked.get("release")))
            return Message(results_record(found), reply_to=msg)
        if asked.get("step") == "release":
            pieces = read("the pieces", lambda: pieces_of(asked))
            return Message(results_record(seat.results.take(pieces, current)), reply_to=msg)
        raise InvalidParameter(f"there is no step {asked.get('step')!r}", field="step")

    def _join(self, ctxt: Context) -> dict[str, Any]:
        own = ctxt.state.config_records.get(RECORD)
        if own is None:
            own = ConfigRecord({"private-key": new_key(), "last-round": 0})
            ctxt.state[RECORD] = own
        neutral = ctxt.node_config.get(NEUTRAL) in {1, "1", "true"}
        key = public_key(bytes(own["private-key"]))  # type: ignore[arg-type]  # bytes
        party = Party(str(ctxt.node_id), key, self._may_aggregate or neutral, neutral)
        return party_values(party, int(own["last-round"]))  # type: ignore[arg-type]  # a number

    def _train(self, msg: Message, seat: _Seat, ctxt: Context, app: Next) -> Message:
        """Let the app train, and put sealed values in the place of its arrays."""
        seat.check_new()
        del msg.content[RECORD]
        sent = {n: arrays for n, arrays in msg.content.array_records.items() if n != COMMON}
        _, received = _arrays.only(sent)  # MixMod changes the message, and not this
        reply = app(msg, ctxt)
        if not reply.has_content():
            return reply
        inside = reply.content.config_records.get(LEARNGENE, ConfigRecord())
        if "refused" in inside:  # LearngeneMod gives a better reason than missing arrays
            raise InvalidParameter(str(inside["refused"]), field="arrays")
        name, trained = _arrays.only(reply.content.array_records)
        del reply.content[name]
        update = _arrays.difference(trained, received)
        examples = _examples(reply.content, seat.weighted_by)
        if seat.conceals:
            reply.content[RECORD] = ConfigRecord({"peak": seat.keep(update, examples)})
        else:
            reply.content[RECORD] = ConfigRecord(tag_values(seat.tags(examples)))
            reply.content[CELLS] = sent_record(seat.plain_cells(update))
        return reply


@dataclass(frozen=True, slots=True)
class _Floor:
    """The least that a client demands of an average."""

    min_members: int
    conceal: bool

    def check(self, roster: Roster) -> None:
        """Refuse a roster of too few members, and a plan that allows less than this client."""
        plan = roster.plan
        if plan.min_members < self.min_members:
            raise InvalidParameter(
                f"the server's plan averages {plan.min_members} members or more, and this client "
                f"{self.min_members} or more: ShardMod(min_members=...) of the app says so",
                field="min_members",
            )
        if self.conceal and not plan.conceal:
            raise InvalidParameter(
                "the server's plan has conceal=False, and this client sends nothing that is not "
                "concealed: ShardMod(conceal=False) in the app allows it",
                field="conceal",
            )
        self.check_members("roster", len(roster.members))

    def check_members(self, what: str, count: int) -> None:
        """Refuse a roster or a round of too few members."""
        if count < self.min_members:
            raise InvalidParameter(
                f"the {what} has {count} members, and this client averages {self.min_members} or "
                f"more: ShardMod(min_members=...) of the app says so",
                field="min_members",
            )


class _Seat:
    """A client's place in the roster of one message, with the client's state."""

    def __init__(
        self, asked: Mapping[str, Any], ctxt: Context, secret: bytes | None, floor: _Floor
    ) -> None:
        own = ctxt.state.config_records.get(RECORD)
        if own is None:
            raise InvalidParameter(_STALE, field="private_key")
        self._own, self._state, self._secret = own, ctxt.state, secret
        self.results = ShardResults(own, ctxt.state)
        self._roster = read("roster", lambda: _roster_of(str(asked["roster"])))
        self._place = self._roster.place(str(ctxt.node_id))
        self._key: bytes = own["private-key"]  # type: ignore[assignment]  # bytes
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
            for name in (*_STATE.values(), _UPDATE):
                self._state.pop(name, None)
            self._own["digest"] = digest

    def check_new(self) -> None:
        """Check that this round is later than all before.

        Raises:
            InvalidParameter: an earlier round had these masks, and two updates under the same
                masks could be read.
        """
        if self._number <= int(self._own["last-round"]):  # type: ignore[arg-type]  # a number
            raise InvalidParameter(
                f"round {self._number} is not after the last one that was trained", field="number"
            )
        self._own["last-round"] = self._number

    @property
    def conceals(self) -> bool:
        """Whether cells are sent later, once the members are fixed."""
        return self._roster.plan.conceal

    def keep(self, update: Any, examples: int) -> float:
        """Keep an update until its concealed cells are asked for; return a power of two above."""
        self._own["examples"] = examples
        self._state[_UPDATE] = ArrayRecord({"update": Array(update)})
        return least_power(self._restore(Member).peak(update))

    def plain_cells(self, update: Any) -> list[SentCell]:
        """The cells of an update that are not concealed."""
        member = self._restore(Member)
        everybody = Round(self._number, dict.fromkeys(self._roster.members, 1.0))
        cells = list(member.cells(update, everybody))
        self._keep(member)
        return cells

    def send(self, current: Round) -> list[SentCell]:
        """The concealed cells of the update that was trained in this round."""
        update = self._state.array_records.get(_UPDATE)
        if update is None or current.number != self._own["last-round"]:
            raise InvalidParameter("nothing was trained in this round", field="number")
        if current.weights.get(self._place) != self._own["examples"]:
            raise InvalidParameter("the round has other examples of this client", field="weights")
        member = self._restore(Member)
        cells = list(member.cells(update["update"].numpy(), current))
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
        if _STATE[Member] in self._state:
            member = self._restore(Member)
            member.settle(number, shards)
            self._keep(member)
        if _STATE[Aggregator] in self._state:
            aggregator = self._restore(Aggregator)
            aggregator.settle(number, held)
            self._keep(aggregator)

    def _restore(self, kind: type[Seated]) -> Seated:
        party = kind(self._roster, self._place, self._key, group_secret=self._secret)
        kept = self._state.array_records.get(_STATE[kind], ArrayRecord())
        party.restore({name: array.numpy() for name, array in kept.items()})
        return party

    def _keep(self, party: Member | Aggregator) -> None:
        arrays = {name: Array(np.asarray(array)) for name, array in party.state().items()}
        if arrays:
            self._state[_STATE[type(party)]] = ArrayRecord(arrays)


@lru_cache(maxsize=16)
def _roster_of(text: str) -> Roster:
    """The roster of a message; cached, since simulations read the same roster for each client."""
    return Roster.from_json(json.loads(text))


_STALE: Final = "this client has no key of the roster"


def _is_stale(error: ModelkinError) -> bool:
    return str(error) == _STALE


def _examples(content: RecordDict, name: str) -> int:
    """The examples that an app reports."""
    if len(content.metric_records) != 1:
        raise InvalidParameter("its reply must have one record of metrics", field="metrics")
    return check_examples(next(iter(content.metric_records.values())).get(name))


def _reply(msg: Message, values: dict[str, Any]) -> Message:
    return Message(RecordDict({RECORD: ConfigRecord(values)}), reply_to=msg)
