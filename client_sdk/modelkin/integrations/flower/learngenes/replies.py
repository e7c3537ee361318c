"""Checks of the shared layers that clients send: no false reply enters an average."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt
from flwr.app import ArrayRecord, ConfigRecord, Message

from modelkin.errors import InvalidInput
from modelkin.federation.layouts import MOST_EXACT
from modelkin.federation.learngenes.aggregate import check_weight, unfit
from modelkin.integrations.flower._arrays import only
from modelkin.integrations.flower._grids import SILENT, failure
from modelkin.integrations.flower._metrics import odd_metrics
from modelkin.integrations.flower.learngenes.layers import values_by_name
from modelkin.integrations.flower.learngenes.mod import RECORD

__all__ = ["SentLayers", "Values", "read_layers"]

Values = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True, slots=True, eq=False)
class SentLayers:
    """The layers that a client sent.

    Attributes:
        reply: the client's message.
        values: arrays of the shared layers, by name.
        examples: the number of examples of the training.
    """

    reply: Message
    values: Values
    examples: float


def read_layers(
    replies: Sequence[Message],
    asked: Mapping[int, ArrayRecord],
    model: ArrayRecord,
    weighted_by: str,
) -> tuple[dict[int, SentLayers], dict[int, str]]:
    """The replies that count, by ascending node, and the reasons why others do not.

    Args:
        replies: answers to the training messages of one round, errors among them.
        asked: the layers that each node was sent, which it may send back.
        model: all arrays.
        weighted_by: the name of the examples among the metrics.
    """
    left_out = dict.fromkeys(asked, SILENT)
    sent: dict[int, SentLayers] = {}
    for reply in replies:
        node = reply.metadata.src_node_id
        if node not in asked:
            continue
        try:
            sent[node] = _check_layers(reply, asked[node], model, weighted_by)
            del left_out[node]
        except InvalidInput as error:
            left_out[node] = str(error)
    for node, why in odd_metrics({node: each.reply.content for node, each in sent.items()}).items():
        left_out[node] = why
        del sent[node]
    return dict(sorted(sent.items())), left_out


def _check_layers(
    reply: Message, asked: ArrayRecord, model: ArrayRecord, weighted_by: str
) -> SentLayers:
    """Check the layers that a client sent, and return them.

    Raises:
        InvalidInput: the reply cannot count; says why.
    """
    if why := failure(reply):
        raise InvalidInput(why)
    content = reply.content
    record = content.config_records.get(RECORD, ConfigRecord())
    if "refused" in record:
        raise InvalidInput(f"it refused: {str(record['refused'])[:500]}")
    _, arrays = only(content.array_records)
    private = sorted(name for name in arrays if name in model and name not in asked)
    if private:
        raise InvalidInput(
            f"it sent its private {private[0]!r}; is LearngeneMod among the mods of its app?"
        )
    values = values_by_name(arrays)
    if wrong := unfit(values, values_by_name(asked)):
        raise InvalidInput(wrong)
    if len(content.metric_records) != 1:
        raise InvalidInput("its reply must have one record of metrics")
    (metrics,) = content.metric_records.values()
    examples = check_weight(metrics.get(weighted_by), "its reply")
    if examples > MOST_EXACT:
        raise InvalidInput(f"it claims {examples:g} examples, more than 2^53")
    return SentLayers(reply, values, examples)
