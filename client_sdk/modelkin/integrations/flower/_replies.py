"""What the replies to training messages hold, and why some of them do not count."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping

from flwr.app import Message, RecordDict

from modelkin.errors import InvalidParameter
from modelkin.integrations.federation.cluster_means import Model
from modelkin.integrations.flower._arrays import only, values_of
from modelkin.integrations.flower._metrics import odd_metrics

__all__ = ["first_of_each", "read_models"]

log = logging.getLogger("modelkin.integrations")


def first_of_each(server_round: int, replies: Iterable[Message]) -> list[Message]:
    """Log and leave out further answers of clients that have answered."""
    found = dict[int, Message]()
    for reply in replies:
        node = reply.metadata.src_node_id
        if found.setdefault(node, reply) is not reply:
            log.warning("round %d: only the first answer of node %d counts", server_round, node)
    return list(found.values())


def read_models(
    replies: Iterable[Message],
    examples_name: str,
    misfits: Callable[[Mapping[int, Model]], Mapping[int, str]],
) -> tuple[dict[int, Model], dict[int, object], dict[int, str]]:
    """The models of replies and the examples that they claim, by node, and why others do not count.

    Args:
        replies: answers to the training messages; errors among them are passed over.
        examples_name: the name of the examples among the metrics.
        misfits: the reasons why some models cannot be averaged with the others.
    """
    models, examples, wrong = dict[int, Model](), dict[int, object](), dict[int, str]()
    sent = {each.metadata.src_node_id: each.content for each in replies if each.has_content()}
    for node, content in sent.items():
        try:
            models[node] = _model(content)
            examples[node] = _examples(content, examples_name)
        except InvalidParameter as error:
            wrong[node] = str(error)
    wrong |= misfits(models)
    # The number of examples is the rule of weights' to judge: some need none.
    fitting = {node: each for node, each in sent.items() if node not in wrong}
    wrong |= odd_metrics(fitting, besides=examples_name)
    return {node: model for node, model in models.items() if node not in wrong}, examples, wrong


def _model(content: RecordDict) -> Model:
    """The arrays of a reply; raises InvalidParameter where they cannot be read."""
    _, arrays = only(content.array_records)
    try:
        return {name: values_of(array) for name, array in arrays.items()}
    except (ValueError, TypeError) as error:
        raise InvalidParameter(f"its arrays cannot be read: {error}", field="arrays") from None


def _examples(content: RecordDict, name: str) -> object:
    """The examples that a reply claims; raises InvalidParameter unless it has one record."""
    if len(content.metric_records) != 1:
        raise InvalidParameter("its reply must have one record of metrics", field="metrics")
    (metrics,) = content.metric_records.values()
    return metrics.get(name)
