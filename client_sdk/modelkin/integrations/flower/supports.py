"""``SupportMod``: clients that send their supports.

The mod of a ClientApp attaches to each training reply the support, or only its signature, of an
importance that the app handed over. ``clusters`` has the server's part.

A support contains no values, but reveals which classes a client holds, and so does a signature. A
server that must not learn that must get neither. See docs/flower.md.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict

from modelkin.errors import InvalidParameter, ModelkinError
from modelkin.integrations.federation.messages import SupportMessage
from modelkin.integrations.federation.support_maker import SupportMaker
from modelkin.integrations.flower._client_labels import ClientLabel, NameOf, TagsOf
from modelkin.integrations.flower._grids import RECORD, is_ask
from modelkin.integrations.flower.shards.records import RECORD as SHARDS

__all__ = ["SupportMod", "hand_over"]

log = logging.getLogger("modelkin.integrations")

_handed_over: ContextVar[list[Any]] = ContextVar("modelkin_importance")


def hand_over(importance: Any) -> None:
    """Give the mod the importance of this round's model; call it during the training.

    The importance stays on this machine: only the indices of its largest entries, or their
    signature, leave it. Both show which classes the client holds.

    Args:
        importance: see ``modelkin.select_support``; or a ``modelkin.torch.GradientMoment``. Best
            computed at the received weights, before any training (``fisher_importance``).

    Raises:
        InvalidParameter: this app has no ``SupportMod`` around its training function.
    """
    try:
        given = _handed_over.get()
    except LookupError:
        raise InvalidParameter(
            "no SupportMod is active: give the app one, ClientApp(mods=[SupportMod()]), and call "
            "this during the training, in the thread that Flower calls",
            field="importance",
        ) from None
    given[:] = [importance]


def waits_for_importance() -> bool:
    """Whether a ``SupportMod`` is around what runs now."""
    return _handed_over.get(None) is not None


class SupportMod:
    """A mod that attaches a support, or its signature, to each training reply.

        app = ClientApp(mods=[SupportMod()])

        @app.train()
        def train(message, context):
            modelkin.integrations.flower.hand_over(fisher_importance(model, loss, loader))
            ...

    If the app handed over no importance, or none that yields a support, the log has a warning and
    the reply is sent without one, with the reason why an importance yields none. Clients should
    have supports of one size: after the first round the strategy sends them the median of their own
    choices, and they use it.

    Args:
        send: ``"support"``, or ``"signature"``: 1 kB, which shows the client's classes nearly as
            well as a support does.
        coverage: see ``modelkin.select_support``; unused if the server sends K.
        k_max: the largest share of indices, in (0, 1]; None for 0.2. The strategy needs the same.
        beta: the share of an average over rounds, kept in the client's own state, that remains
            after each round; the paper's is 0.8. None uses only each round's importance.
        num_perm: h of the signature.
        seed: 0 to 2^32 - 1; all clients need the same one to be compared.
        name: a function that makes the client's name of a context: ``lambda context:
            context.node_config["name"]``; or None. A string is for an app of one node: of several
            only the first has it. Clusters and the service show it in place of the node's id.
        tags: the client's tags, or a function that makes them of a context; a service keeps them
            with the client's model.

    Raises:
        InvalidParameter: an argument is out of its range.
    """

    def __init__(
        self,
        send: str = "support",
        *,
        coverage: float | None = None,
        k_max: float | None = None,
        beta: float | None = None,
        num_perm: int = 256,
        seed: int = 1,
        name: NameOf | None = None,
        tags: TagsOf = (),
    ) -> None:
        self._maker = SupportMaker(
            send, coverage=coverage, k_max=k_max, beta=beta, num_perm=num_perm, seed=seed
        )
        self._label = ClientLabel(name, tags)

    def __call__(
        self, msg: Message, ctxt: Context, call_next: Callable[[Message, Context], Message]
    ) -> Message:
        """Call the app, and attach a record to its reply to a training message."""
        shards = msg.content.config_records.get(SHARDS, ConfigRecord())
        trains = msg.metadata.message_type.partition(".")[0] == "train"
        if not trains or is_ask(msg) or shards.get("step", "train") != "train":
            return call_next(msg, ctxt)
        config = msg.content.config_records.get(RECORD)
        k = None if config is None else config.get("k")
        given: list[Any] = []
        token = _handed_over.set(given)
        try:
            reply = call_next(msg, ctxt)
        finally:
            _handed_over.reset(token)
        if reply.has_content():
            self._attach(reply.content, given, k, ctxt)
        return reply

    def _attach(self, content: RecordDict, given: list[Any], k: Any, ctxt: Context) -> None:
        if not given:
            log.warning("no support is sent: the app did not call modelkin's hand_over(importance)")
            return
        try:
            message = self._make_message(given[0], k, ctxt)
        except ModelkinError as error:
            log.warning("no support is sent: %s", error)
            content[RECORD] = ConfigRecord({"refused": str(error), **self._label.values(ctxt)})
            return
        content[RECORD] = ConfigRecord({**message.to_values(), **self._label.values(ctxt)})

    def _make_message(self, given: Any, k: Any, ctxt: Context) -> SupportMessage:
        kept = ctxt.state.array_records.get(RECORD)
        before = None if kept is None else kept["importance"].numpy()
        message, importance = self._maker.make(given, k, before)
        if self._maker.beta is not None:
            ctxt.state[RECORD] = ArrayRecord({"importance": Array(importance)})
        return message
