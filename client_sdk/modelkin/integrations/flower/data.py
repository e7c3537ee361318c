"""``DataMod``: a node's answer about its data, and the server's question for it.

A data subspace is a fingerprint of samples; no model and no training is needed to compare two. The
server asks each node once, before its first round. A subspace shows the mean sample of each class
to the server: see docs/starting.md.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from flwr.app import ConfigRecord, Context, Message, MessageType, RecordDict
from flwr.serverapp import Grid

from modelkin.core.subspaces.subspace import Subspace
from modelkin.errors import InvalidParameter, ModelkinError
from modelkin.integrations.federation.data_clusters import ASK, Answers
from modelkin.integrations.flower._client_labels import ClientLabel, NameOf, TagsOf
from modelkin.integrations.flower._grids import RECORD, exchange, is_ask

__all__ = ["DataMod", "ask_subspaces", "check_patience"]

log = logging.getLogger("modelkin.integrations")

Next = Callable[[Message, Context], Message]


class DataMod:
    """A mod that answers the server's question for the node's data subspace.

        app = ClientApp(mods=[DataMod(lambda context: fit_subspace(*load(context)))])

    The app is not called for the question. ``DataMod`` comes before ``ShardMod``, which lets only
    messages of its own rounds pass. docs/starting.md says what a subspace shows, and how to add
    noise.

    Args:
        fit: makes the subspace of a context's node. If it fails, the node is in no cluster, and the
            server's log says why.
        name: the node's name, or a function that makes it of a context, or None.
        tags: the node's tags, or a function that makes them of a context.
    """

    def __init__(
        self,
        fit: Callable[[Context], Subspace],
        *,
        name: NameOf | None = None,
        tags: TagsOf = (),
    ) -> None:
        if not callable(fit):
            raise InvalidParameter(
                f"give a function that makes a subspace of a context, not {fit!r}", field="fit"
            )
        self._fit, self._label = fit, ClientLabel(name, tags)

    def __call__(self, msg: Message, ctxt: Context, call_next: Next) -> Message:
        """Answer a question for the subspace; let other messages pass."""
        if not is_ask(msg):
            return call_next(msg, ctxt)
        try:
            found = self._fit(ctxt)
            if not isinstance(found, Subspace):
                raise InvalidParameter(
                    f"DataMod's function made {type(found).__name__}, not a Subspace", field="fit"
                )
            values: dict[str, Any] = {ASK: found.to_bytes(), **self._label.values(ctxt)}
        except (ModelkinError, OSError, ValueError) as error:
            log.warning("no subspace is sent: %s", error)
            values = {"refused": str(error)}
        return Message(RecordDict({RECORD: ConfigRecord(values)}), reply_to=msg)


def check_patience(patience: float) -> float:
    """Check the seconds to wait for subspaces, and return them.

    Raises:
        InvalidParameter: the number is not above 0.
    """
    if not isinstance(patience, int | float) or not 0 < patience < float("inf"):
        raise InvalidParameter(
            f"patience must be a number of seconds above 0, not {patience!r}", field="patience"
        )
    return patience


def ask_subspaces(nodes: Sequence[int], grid: Grid, patience: float) -> Answers:
    """Ask nodes of a grid for their subspaces, and wait for so many seconds."""
    record = RecordDict({RECORD: ConfigRecord({"step": ASK})})
    messages = [Message(record, dst_node_id=node, message_type=MessageType.TRAIN) for node in nodes]
    return {
        node: answer
        if isinstance(answer, str)
        else answer.config_records.get(RECORD, ConfigRecord())
        for node, answer in exchange(grid, messages, patience).items()
    }
