"""Which members' metrics an aggregation function can take together: those that are like most.

The app's own function averages them, or does what it likes. A list where the others have a number
would end the whole run in it.
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
"""What each metric is, a number or a list of a length, by name; that of the record is ``""``."""


def odd_metrics(contents: Mapping[K, RecordDict]) -> dict[K, str]:
    """Why some members' metrics cannot be averaged with those of most, by member.

    Args:
        contents: of the members' replies, each with one record of metrics.
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
    """The replies to evaluation messages without those whose metrics are unlike most; logged."""
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
    """The names that one of two has alone, or else what is of another form."""
    names = sorted(form.keys() ^ usual.keys())
    if names:
        return ", ".join(name[:80] for name in names)
    return ", ".join(
        f"{name[:80] or 'they'} {'is' if name else 'are'} {form[name]}, not {usual[name]}"
        for name in sorted(form)
        if form[name] != usual[name]
    )
