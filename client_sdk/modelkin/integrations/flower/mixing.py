"""``MixMod``: a client that gets its cluster's model and the common one, and makes one of them.

``federation.wanted_models`` has the server's part. See docs/flower-means.md.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict

from modelkin.core.adapters import has_factors
from modelkin.errors import InvalidParameter
from modelkin.federation.mixing import Mixing, Tensors
from modelkin.integrations.flower._arrays import only
from modelkin.integrations.flower.learngenes.layers import values_by_name
from modelkin.integrations.flower.shards.records import RECORD as SHARDS

__all__ = ["COMMON", "RECORD", "MixMod"]

log = logging.getLogger("modelkin.integrations")

COMMON: Final = "modelkin-common"
"""The name of the record of arrays with the common model, beside the cluster's."""

RECORD: Final = "modelkin-mix"
"""The name of a reply's record: the models that the client wants, and the share it took."""

Loss = Callable[[ArrayRecord, Context], float]


class MixMod:
    """A mod that makes one model of the cluster's and the common one, for an ordinary app.

        app = ClientApp(mods=[MixMod(0.5)])  # the mean of both models
        app = ClientApp(mods=[MixMod((0, 1), loss=held_out_loss)])  # the better one

    The app gets one model, to train and to evaluate: ``share`` of its cluster's model, and the rest
    of the common one. Each reply says which models the client wants, and a
    ``ClusteredStrategy(..., per_cluster=True, both=True)`` sends these from the next message on. A
    client that has got only one model, as in the first round, trains that.

    ``MixMod`` comes after ``ShardMod``, whose update is relative to the cluster's model, and before
    ``LearngeneMod`` and mods that compare the trained model with the received one.

    Args:
        share: the share of the cluster's model: 1 keeps it, 0 keeps the common one. With several,
            each message's model is the one of least loss.
        loss: a function of a model's arrays and the context, needed with several shares. Compute it
            on samples that the client does not train on.

    Raises:
        InvalidParameter: a share is not 0 to 1, or several are without a loss, or one is with it.
    """

    def __init__(self, share: float | Sequence[float], *, loss: Loss | None = None) -> None:
        self._mixing, self._loss = Mixing.of(share), loss
        if self._mixing.chooses != (loss is not None):
            raise InvalidParameter("give loss with several shares, and only then", field="loss")

    def __call__(
        self, msg: Message, ctxt: Context, call_next: Callable[[Message, Context], Message]
    ) -> Message:
        """Give the app one model, and say in its reply which models are wanted."""
        content = msg.content
        shards = content.config_records.get(SHARDS, ConfigRecord())
        if shards.get("step") in ("join", "train"):
            return _refuse(msg, "MixMod must come after ShardMod among the mods of the app")
        if not content.array_records:
            return call_next(msg, ctxt)
        said = ConfigRecord({"wants": self._mixing.wants})
        if COMMON in content.array_records:
            common = content.array_records[COMMON]
            del content[COMMON]
            said["share"] = self._mix(content, common, ctxt)
        reply = call_next(msg, ctxt)
        if reply.has_content():
            reply.content[RECORD] = said
        return reply

    def _mix(self, content: RecordDict, common: ArrayRecord, ctxt: Context) -> float:
        """Put one model in the place of the cluster's; return the cluster's share."""
        name, cluster = only(content.array_records)
        if has_factors(cluster):
            raise InvalidParameter(
                "MixMod cannot mix adapters: a mean of their factors is not that of their "
                "differences",
                field="arrays",
            )
        loss = None if self._loss is None else partial(self._loss_of, context=ctxt)
        found = self._mixing.model(values_by_name(cluster), values_by_name(common), loss)
        content[name] = _record(found.tensors)
        shown = ", ".join(f"{share:g}: {value:.4g}" for share, value in found.losses.items())
        log.info(
            "share %g of the cluster's model%s", found.share, f"; losses {shown}" if shown else ""
        )
        return found.share

    def _loss_of(self, tensors: Tensors, context: Context) -> float:
        assert self._loss is not None
        return self._loss(_record(tensors), context)


def _record(tensors: Tensors) -> ArrayRecord:
    return ArrayRecord({name: Array(values) for name, values in tensors.items()})


def _refuse(msg: Message, why: str) -> Message:
    """Refuse a round of shards: an update relative to a mix would be added to another model."""
    log.warning("the server's message is refused: %s", why)
    return Message(RecordDict({SHARDS: ConfigRecord({"refused": why})}), reply_to=msg)
