"""Leave out members whose metrics have another form than most, before they are aggregated."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import TypeVar

from flwr.app import Message, RecordDict

from modelkin.integrations.federation.metric_forms import forms_of, odd_forms

__all__ = ["odd_metrics", "without_odd_metrics"]

log = logging.getLogger("modelkin.integrations")

Id = TypeVar("Id", int, str)


def odd_metrics(contents: Mapping[Id, RecordDict], besides: str | None = None) -> dict[Id, str]:
    """The reasons why some members' metrics cannot be averaged with those of most, by member.

    Args:
        contents: the contents of the members' replies, each with one record of metrics.
        besides: the name of a metric that is judged by itself.
    """
    return odd_forms({member: _forms(content, besides) for member, content in contents.items()})


def without_odd_metrics(server_round: int, replies: Iterable[Message]) -> list[Message]:
    """Log and leave out replies to evaluation messages whose metrics are unlike most."""
    replies = list(replies)
    contents = {
        at: reply.content
        for at, reply in enumerate(replies)
        if reply.has_content() and len(reply.content.metric_records) == 1
    }
    odd = odd_metrics(contents)
    for at, why in odd.items():
        node = replies[at].metadata.src_node_id
        log.warning("round %d: node %d is not in the evaluation: %s", server_round, node, why)
    return [reply for at, reply in enumerate(replies) if at not in odd]


def _forms(content: RecordDict, besides: str | None) -> dict[str, str]:
    ((record, metrics),) = content.metric_records.items()
    forms = {"": f"in a record {record[:80]!r}", **forms_of(metrics)}
    return {name: form for name, form in forms.items() if name != besides}
