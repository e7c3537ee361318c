"""What clients send of their shared layers, checked: nothing of a false one enters an average."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy.typing as npt
from flwr.app import ArrayRecord, ConfigRecord, Message

from modelkin.core.learngenes.aggregate import check_weight, unfit
from modelkin.errors import InvalidInput
from modelkin.integrations.flower._arrays import only
from modelkin.integrations.flower._grids import failure
from modelkin.integrations.flower._learngene_layers import values_by_name
from modelkin.integrations.flower._learngene_mod import RECORD

__all__ = ["SentLayers", "Values", "read_layers"]

Values = Mapping[str, npt.NDArray[Any]]

_MOST_EXAMPLES: Final = 2.0**53
"""More would make a sum infinite, or the others' share of it nothing."""


@dataclass(frozen=True, slots=True, eq=False)
class SentLayers:
    """What a client sent.

    Attributes:
        reply: its message.
        values: of its shared layers, by array.
        examples: that it trained on.
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
    """The replies that count, by ascending node, and why others do not.

    Args:
        replies: to the training messages.
        asked: the layers that each node was sent, which it may send back.
        model: all arrays.
        weighted_by: the name of the examples among the metrics.
    """
    left_out = dict.fromkeys(asked, "it did not answer in time")
    sent: dict[int, SentLayers] = {}
    for reply in replies:
        node = reply.metadata.src_node_id
        if node not in asked:
            continue
        try:
            sent[node] = _checked(reply, asked[node], model, weighted_by)
            del left_out[node]
        except InvalidInput as error:
            left_out[node] = str(error)
    _leave_out_other_metrics(sent, left_out)
    return dict(sorted(sent.items())), left_out


def _checked(
    reply: Message, asked: ArrayRecord, model: ArrayRecord, weighted_by: str
) -> SentLayers:
    """What a client sent.

    Raises:
        InvalidInput: it cannot count; says why.
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
    if examples > _MOST_EXAMPLES:
        raise InvalidInput(f"it claims {examples:g} examples, more than 2^53")
    return SentLayers(reply, values, examples)


def _leave_out_other_metrics(sent: dict[int, SentLayers], left_out: dict[int, str]) -> None:
    """Leave out members whose metrics have other names than most: they cannot be averaged."""
    names = {node: _metric_names(each.reply) for node, each in sent.items()}
    most = Counter(names.values()).most_common(1)
    for node, found in names.items():
        if found != most[0][0]:
            odd = ", ".join(sorted(found ^ most[0][0]))
            left_out[node] = f"its metrics differ from those of most: {odd}"
            del sent[node]


def _metric_names(reply: Message) -> frozenset[str]:
    (metrics,) = reply.content.metric_records.values()
    return frozenset(metrics)
