"""Leave out members whose metrics have another form than most, before they are aggregated.

The app's own function averages the metrics, or computes something else. A list in place of a number
could raise an error there, and end the whole run.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TypeVar

from flwr.app import Message, MetricRecord, RecordDict

__all__ = ["odd_metrics", "without_odd_metrics"]

log = logging.getLogger("modelkin.integrations")

K = TypeVar("K")
Forms = dict[str, str]
"""The form of each metric by name, a number or a list of a length; ``""`` is for the record."""


def odd_metrics(contents: Mapping[K, RecordDict]) -> dict[K, str]:
    """The reasons why some members' metrics cannot be averaged with those of most, by member.

    Args:
        contents: the contents of the members' replies, each with one record of metrics.
    """
    forms = {member: _forms(content) for member, content in contents.items()}
    counted = Counter(tuple(sorted(form.items())) for form in forms.values())
    usual = dict(counted.most_common(1)[0][0]) if counted else {}
    return {
        member: f"its metrics differ from those of most: {_difference(form, usual)}"
        for member, form in forms.items()
        if form != usual
    }


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


def _forms(content: RecordDict) -> Forms:
    ((record, metrics),) = content.metric_records.items()
    return {"": f"in a record {record[:80]!r}", **{name: _form(metrics, name) for name in metrics}}


def _form(metrics: MetricRecord, name: str) -> str:
    value = metrics[name]
    return f"a list of {len(value)}" if isinstance(value, list) else "a number"


def _difference(form: Forms, usual: Forms) -> str:
    """The names that only one of two forms has, or else the metrics that differ."""
    names = sorted(form.keys() ^ usual.keys())
    if names:
        return ", ".join(name[:80] for name in names)
    return ", ".join(
        f"{name[:80] or 'they'} {'is' if name else 'are'} {form[name]}, not {usual[name]}"
        for name in sorted(form)
        if form[name] != usual[name]
    )
