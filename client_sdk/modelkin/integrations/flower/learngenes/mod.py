"""``LearngeneMod``: a client's part in sharing some of its layers, around an ordinary app."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict

from modelkin.errors import InvalidParameter, ModelkinError
from modelkin.federation.learngenes.layers import LayerChoice
from modelkin.federation.learngenes.learngene import Learngene
from modelkin.integrations.flower._arrays import only
from modelkin.integrations.flower.learngenes.layers import (
    layout_of,
    part_of,
    values_by_name,
)
from modelkin.integrations.flower.shards.records import RECORD as SHARDS

__all__ = ["RECORD", "LearngeneMod"]

log = logging.getLogger("modelkin.integrations")

RECORD: Final = "modelkin-learngene"
"""The name of the record of a refusal, and of the private layers in a client's state."""

_LAYOUT: Final = "modelkin-learngene-layout"

_SHARD_MOD: Final = (
    "the server averages in shards, and ShardMod is behind LearngeneMod or missing: the order is "
    "mods=[DataMod(...) or SupportMod(), ShardMod(), LearngeneMod(...)]"
)

Next = Callable[[Message, Context], Message]
Layout = dict[str, tuple[str, tuple[int, ...]]]


class LearngeneMod:
    """A mod that shares some layers of a client's model, and keeps the rest on the node.

        app = ClientApp(mods=[LearngeneMod(initial=lambda: network().state_dict(), depth=4)])

    The app gets a whole model, to train and to evaluate: the shared layers of the message, and its
    own private ones as it left them. Its reply leaves with only the shared layers, whatever the
    server asks for. ``LearngeneMod`` comes after ``ShardMod``.

    Without ``depth``, ``share`` or ``tensors`` all layers but the last are shared.

    Args:
        initial: makes the arrays of a whole model, as ``state_dict()`` names them; the private
            layers begin with them.
        depth: the number of shared layers, from the input on.
        share: a share of the bytes: as many layers from the input on as fit are shared.
        tensors: shell patterns of the names of shared arrays.
        exclude: shell patterns of names that are never shared.
        order: shell patterns of layers, from the input on, where that is not their order.
        buffers: whether running statistics are shared with their layers.
        tightens: whether this node also sends other layers while the strategy asks for them, in its
            first rounds. Then the server sees these layers.

    Raises:
        InvalidParameter: an argument is out of its range.
    """

    def __init__(
        self,
        initial: Callable[[], Mapping[str, Any]],
        *,
        depth: int | None = None,
        share: float | None = None,
        tensors: Sequence[str] | None = None,
        exclude: Sequence[str] = (),
        order: Sequence[str] = (),
        buffers: bool = False,
        tightens: bool = False,
    ) -> None:
        if not callable(initial):
            raise InvalidParameter(
                f"give a function that makes the arrays of a model, not {type(initial).__name__}",
                field="initial",
            )
        self._initial, self._buffers, self._tightens = initial, buffers, tightens
        self._choice = LayerChoice(depth, share, tensors, exclude, order)

    def __call__(self, msg: Message, ctxt: Context, call_next: Next) -> Message:
        """Give the app a whole model, and take the private layers out of its reply."""
        if SHARDS in msg.content:  # ShardMod lets none of its records pass
            return _refusal(msg, _SHARD_MOD, RECORD, SHARDS)
        if not msg.content.array_records:
            return call_next(msg, ctxt)
        try:
            model = _Model(self._initial, ctxt)
            learngene = Learngene.of(model.layout, self._choice, buffers=self._buffers)
            name, received = only(msg.content.array_records)
            shared = self._shared_names(learngene, model.layout, received)
            msg.content[name] = model.complete(part_of(received, shared))
        except ModelkinError as error:
            return _refusal(msg, str(error))
        reply = call_next(msg, ctxt)
        if not reply.has_content() or not reply.content.array_records:
            return reply
        try:
            if msg.metadata.message_type.partition(".")[0] != "train":
                raise InvalidParameter("arrays leave with a training reply alone", field="arrays")
            name, trained = only(reply.content.array_records)
            model.keep(trained, shared)
            reply.content[name] = part_of(trained, shared)
        except ModelkinError as error:
            return _refusal(msg, str(error))
        return reply

    def _shared_names(
        self, learngene: Learngene, layout: Layout, received: ArrayRecord
    ) -> tuple[str, ...]:
        """The names of arrays that are taken from the message, and sent back."""
        for name, array in received.items():
            if name not in layout:
                raise InvalidParameter(f"the model has no array {name[:80]!r}", field="arrays")
            if tuple(array.shape) != layout[name][1]:
                raise InvalidParameter(
                    f"array {name!r} has shape {list(array.shape)}, the model's "
                    f"{list(layout[name][1])}",
                    field="arrays",
                )
        allowed = set(learngene.names)
        if self._tightens:
            allowed.update(name for layer in learngene.others for name in layer)
        shared = tuple(name for name in layout if name in allowed and name in received)
        if not shared:
            raise InvalidParameter("the message has no array that is shared", field="arrays")
        return shared


class _Model:
    """A client's own model; the client's state keeps the arrays that are not shared."""

    def __init__(self, initial: Callable[[], Mapping[str, Any]], ctxt: Context) -> None:
        self._make, self._state = initial, ctxt.state
        kept = ctxt.state.config_records.get(_LAYOUT)
        self._initial: ArrayRecord | None = None
        if kept is None:
            self.layout: Layout = layout_of(self._initial_arrays())
            text = json.dumps([[n, d, list(s)] for n, (d, s) in self.layout.items()])
            ctxt.state[_LAYOUT] = ConfigRecord({"layout": text})
        else:
            stored = json.loads(str(kept["layout"]))
            self.layout = {name: (dtype, tuple(shape)) for name, dtype, shape in stored}

    def complete(self, shared: ArrayRecord) -> ArrayRecord:
        """Make a whole model with the layers of a message."""
        private = self._state.array_records.get(RECORD, ArrayRecord())
        found: dict[str, Array] = {}
        for name in self.layout:
            if name in shared:
                found[name] = shared[name]
            else:
                found[name] = private[name] if name in private else self._initial_arrays()[name]
        return ArrayRecord(found)

    def keep(self, trained: ArrayRecord, shared: Sequence[str]) -> None:
        """Keep the arrays that are not shared for the next message.

        Raises:
            InvalidParameter: the app's arrays are not those of the model.
        """
        if set(trained) != set(self.layout):
            odd = sorted(set(trained) ^ set(self.layout))
            raise InvalidParameter(
                f"its app's arrays are not those of the model: {odd[:3]}", field="arrays"
            )
        private = set(self.layout).difference(shared)
        self._state[RECORD] = ArrayRecord(
            {
                name: Array(np.array(v))
                for name, v in values_by_name(trained).items()
                if name in private
            }
        )

    def _initial_arrays(self) -> ArrayRecord:
        if self._initial is None:
            self._initial = ArrayRecord(
                {name: Array(_as_numpy(value)) for name, value in self._make().items()}
            )
        return self._initial


def _as_numpy(value: Any) -> np.typing.NDArray[Any]:
    if hasattr(value, "detach"):
        value = value.detach().cpu()
    return np.asarray(value)


def _refusal(msg: Message, why: str, *records: str) -> Message:
    log.warning("nothing is sent: %s", why)
    refused = RecordDict()
    for name in records or (RECORD,):
        refused[name] = ConfigRecord({"refused": why})
    return Message(refused, reply_to=msg)
