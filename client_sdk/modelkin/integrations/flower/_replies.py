"""What the replies to training messages hold, and why some of them do not count."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

from flwr.app import Message, RecordDict

from modelkin.errors import InvalidParameter
from modelkin.integrations.federation.cluster_history import RoundClusters
from modelkin.integrations.federation.cluster_means import Model
from modelkin.integrations.flower._arrays import only, values_of
from modelkin.integrations.flower._grids import failure
from modelkin.integrations.flower._metrics import odd_metrics

__all__ = ["first_of_each", "with_failures", "judge_models", "read_models"]

log = logging.getLogger("modelkin.integrations")


def first_of_each(server_round: int, replies: Iterable[Message]) -> list[Message]:
    """Log and leave out further answers of clients that have answered.

    Errors are all kept: those of a SuperLink, for nodes that are away, come under one id.
    """
    answered, found = set[int](), list[Message]()
    for reply in replies:
        node = reply.metadata.src_node_id
        if reply.has_content() and node in answered:
            log.warning("round %d: only the first answer of node %d counts", server_round, node)
            continue
        if reply.has_content():
            answered.add(node)
        found.append(reply)
    return found


def with_failures(
    found: RoundClusters, replies: Iterable[Message], asked: Collection[int]
) -> RoundClusters:
    """Clusters of a round with the reasons of the clients whose apps failed.

    Args:
        found: the clusters. A known client stays in its cluster, and has no part in the means.
        replies: answers to the training messages, errors among them.
        asked: the clients that were to train; errors of a SuperLink are of no client.
    """
    failed = {r.metadata.src_node_id: failure(r) for r in replies if not r.has_content()}
    out, down = dict(found.left_out), dict(found.weighted_down)
    for node in sorted(failed.keys() & set(asked)):
        (down if node in found.nodes else out).setdefault(node, failed[node])
    return replace(found, left_out=out, weighted_down=down)


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
    models, wrong = dict[int, Model](), dict[int, str]()
    sent = _contents(replies)
    for node, content in sent.items():
        try:
            models[node] = _model(content)
        except InvalidParameter as error:
            wrong[node] = str(error)
    wrong |= misfits(models)
    examples = _claims(sent, examples_name, wrong)
    return {node: model for node, model in models.items() if node not in wrong}, examples, wrong


def judge_models(
    replies: Iterable[Message],
    examples_name: str,
    misfit: Callable[[Model], str | None],
) -> tuple[dict[int, object], dict[int, str]]:
    """The examples that replies claim, and why others do not count; one model is read at a time.

    Args:
        replies: answers to the training messages; errors among them are passed over.
        examples_name: the name of the examples among the metrics.
        misfit: the reason why a model cannot be averaged, if there is one.
    """
    sent, wrong = _contents(replies), dict[int, str]()
    for node, content in sent.items():
        try:
            why = misfit(_model(content))
        except InvalidParameter as error:
            why = str(error)
        if why is not None:
            wrong[node] = why
    return _claims(sent, examples_name, wrong), wrong


def _contents(replies: Iterable[Message]) -> dict[int, RecordDict]:
    return {each.metadata.src_node_id: each.content for each in replies if each.has_content()}


def _claims(
    sent: Mapping[int, RecordDict], examples_name: str, wrong: dict[int, str]
) -> dict[int, object]:
    """The examples that nodes claim whose models fit; notes whose metrics are wrong."""
    examples = dict[int, object]()
    for node in [node for node in sent if node not in wrong]:
        try:
            examples[node] = _examples(sent[node], examples_name)
        except InvalidParameter as error:
            wrong[node] = str(error)
    # The number of examples is the rule of weights' to judge: some need none.
    odd = odd_metrics({node: sent[node] for node in examples}, besides=examples_name)
    wrong |= odd
    return {node: number for node, number in examples.items() if node not in odd}


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
