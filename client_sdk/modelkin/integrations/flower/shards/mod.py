"""``ShardMod``: a client's part in averages in shards, around an app that only trains."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable
from typing import Final

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict

from modelkin.errors import InvalidParameter, ModelkinError
from modelkin.federation.shards.plan import MIN_MEMBERS
from modelkin.integrations.federation.shards.client import Seat, ShardClient
from modelkin.integrations.federation.shards.rounds import check_examples
from modelkin.integrations.flower import _arrays
from modelkin.integrations.flower._grids import RECORD as QUESTIONS
from modelkin.integrations.flower._grids import is_ask
from modelkin.integrations.flower.learngenes.mod import RECORD as LEARNGENE
from modelkin.integrations.flower.mixing import COMMON
from modelkin.integrations.flower.shards.records import (
    RECORD,
    FlowerState,
    message_of,
    record_of,
)
from modelkin.integrations.flower.supports import waits_for_importance

__all__ = ["ShardMod"]

log = logging.getLogger("modelkin.integrations")

NEUTRAL: Final = "modelkin-neutral"
"""The key in the node's configuration: 1 for a node that aggregates and never trains."""

_DATA_MOD: Final = (
    "DataMod is behind ShardMod or missing: the order is "
    "mods=[DataMod(...), ShardMod(), LearngeneMod(...)]"
)

_SUPPORT_MOD: Final = (
    "SupportMod is before ShardMod(max_staleness=...), which keeps what the mods behind it send: "
    "the order is mods=[ShardMod(...), SupportMod()]"
)

Next = Callable[[Message, Context], Message]


class ShardMod:
    """A mod that seals a client's update, and combines the shards that the client holds.

        app = ClientApp(mods=[ShardMod(), LocalDpMod(...)])

    ``DataMod`` and ``SupportMod`` come before ``ShardMod``, and all other mods behind it: it takes
    the reply that they made. No arrays leave the client in the clear: a training message of a
    server without ``ShardedStrategy`` is refused, as is another plan in the same run. Each client
    sets its own least number of members, since an average of one member is that member's model. The
    log has the roster's digest, which is the same at all members.

    With ``max_staleness`` a client that is too slow for its round counts in a later one. Its cells
    leave only once the server asks for them, when all have trained. If it does not ask, the client
    keeps the update, and offers it in the next round that it is asked to train in, in place of
    training: times 1 / sqrt(1 + s), s rounds late. Cells are sealed for the round that is open. An
    update of which cells were asked for is not offered again. ``SupportMod`` then comes behind
    ``ShardMod``, so that its support is kept beside the update.

    Args:
        group_secret: 16 bytes or more that all clients know, and the server does not. Without it,
            a server that seats its own clients as aggregators can open cells sealed to them.
        may_aggregate: whether this client may hold a shard.
        min_members: the least number of members of a plan, a roster and a round, whatever the
            server chose.
        conceal: whether a plan without pairwise masks is refused.
        max_staleness: the most rounds that an update may be late to count; 0 to train in each.

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
    ) -> None:
        self._client = ShardClient(
            group_secret,
            may_aggregate=may_aggregate,
            min_members=min_members,
            conceal=conceal,
            max_staleness=max_staleness,
            app="ShardMod",
        )

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
            return self._answer(msg, ctxt, call_next)
        except ModelkinError as error:
            refusal = self._client.refusal(error, FlowerState(ctxt.state))
            return Message(record_of(refusal), reply_to=msg)

    def _answer(self, msg: Message, ctxt: Context, app: Next) -> Message:
        asked, state, name = message_of(msg.content), FlowerState(ctxt.state), str(ctxt.node_id)
        assert asked is not None
        if asked.values.get("step") == "join":
            neutral = ctxt.node_config.get(NEUTRAL) in {1, "1", "true"}
            answer = self._client.join(name, state, neutral=neutral)
        elif asked.values.get("step") == "train":
            return self._train(msg, self._client.seat(asked.values, name, state), ctxt, app)
        else:
            answer = self._client.answer(asked, name, state)
        return Message(record_of(answer), reply_to=msg)

    def _train(self, msg: Message, seat: Seat, ctxt: Context, app: Next) -> Message:
        """Answer with an update that was late, or else let the app train."""
        if self._client.max_staleness and waits_for_importance():
            raise InvalidParameter(_SUPPORT_MOD, field="mods")
        seat.check_new()
        del msg.content[RECORD]
        sent = {n: arrays for n, arrays in msg.content.array_records.items() if n != COMMON}
        _, received = _arrays.only(sent)  # MixMod changes the message, and not this
        model, state = _model_of(received, ctxt.run_id), FlowerState(ctxt.state)
        late = seat.late(model)
        if late is not None:
            content = state.kept_reply()
            content.update(record_of(late))
            return Message(content, reply_to=msg)
        reply = app(msg, ctxt)
        if reply.has_content():
            self._seal(reply.content, received, seat, model, state)
        return reply

    def _seal(
        self,
        content: RecordDict,
        received: ArrayRecord,
        seat: Seat,
        model: str,
        state: FlowerState,
    ) -> None:
        """Put sealed values in the place of the arrays of a reply."""
        inside = content.config_records.get(LEARNGENE, ConfigRecord())
        if "refused" in inside:  # LearngeneMod gives a better reason than missing arrays
            raise InvalidParameter(str(inside["refused"]), field="arrays")
        name, trained = _arrays.only(content.array_records)
        del content[name]
        update = _arrays.difference(trained, received)
        answer = seat.trained(update, _examples(content, seat.weighted_by), model)
        if self._client.max_staleness:
            state.keep_reply(content)
        content.update(record_of(answer))


def _model_of(arrays: ArrayRecord, run: int) -> str:
    """What an update of these arrays can be added to: arrays of one run, names and shapes."""
    shapes = [(name, array.shape) for name, array in arrays.items()]
    return hashlib.sha256(json.dumps([run, shapes]).encode()).hexdigest()


def _examples(content: RecordDict, name: str) -> int:
    """The examples that an app reports."""
    if len(content.metric_records) != 1:
        raise InvalidParameter("its reply must have one record of metrics", field="metrics")
    return check_examples(next(iter(content.metric_records.values())).get(name))
