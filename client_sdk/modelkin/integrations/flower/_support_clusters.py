"""``SupportClusters``: the clusters of clients by the supports in their replies."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message

from modelkin.errors import ModelkinError
from modelkin.integrations.federation.client_names import ClientNames
from modelkin.integrations.federation.cluster_history import ClusterHistory, RoundClusters
from modelkin.integrations.federation.messages import MessageLimits, SupportMessage
from modelkin.integrations.flower._first_supports import FirstSupports
from modelkin.integrations.flower._grids import RECORD

__all__ = ["SupportClusters"]

log = logging.getLogger("modelkin.integrations")


class SupportClusters:
    """The clusters of clients by their supports, found in each round.

    Args:
        history: numbers the clusters, so that a cluster keeps its number from round to round.
        names: the nodes' names, noted as they answer.
        keeps_first: whether clients are compared by their supports at the first round's weights.
        forget_after: rounds without an answer after which a client is forgotten; None for never.
        k_max: the ``k_max`` of the clients' ``SupportMod``.

    Raises:
        InvalidParameter: ``forget_after`` is out of its range.
    """

    def __init__(
        self,
        history: ClusterHistory,
        names: ClientNames,
        *,
        keeps_first: bool,
        forget_after: int | None,
        k_max: float | None,
    ) -> None:
        self._history, self._names = history, names
        self.keeps_first = keeps_first
        self.first = FirstSupports(forget_after)
        """The supports at the first round's weights; empty unless they are kept."""
        self._k_max, self._limits = k_max, MessageLimits()
        self._present = frozenset[int]()

    def begin(self, arrays: ArrayRecord, present: Iterable[int]) -> None:
        """Begin a round with these weights and connected nodes."""
        values = sum(math.prod(array.shape) for array in arrays.values())
        self._limits = MessageLimits.of(values, self._k_max)
        self._present = frozenset(present)
        if self.keeps_first:
            self.first.begin(arrays)

    def take_messages(
        self, replies: Iterable[Message]
    ) -> tuple[dict[int, SupportMessage], dict[int, str]]:
        """Take modelkin's records out of replies; return messages, and reasons for missing ones."""
        messages, unread = dict[int, SupportMessage](), dict[int, str]()
        for reply in replies:
            if not reply.has_content():
                continue  # the wrapped strategy reports failures
            node = reply.metadata.src_node_id
            record: Any = reply.content.pop(RECORD, None)
            if not isinstance(record, ConfigRecord):
                unread[node] = "it sent no support; is SupportMod among the mods of its app?"
                continue
            self._names.note(node, record, self._present)
            try:
                messages[node] = SupportMessage.from_values(record, self._limits)
            except ModelkinError as error:
                unread[node] = str(error)
        return messages, unread

    def update(
        self,
        server_round: int,
        messages: Mapping[int, SupportMessage],
        unread: Mapping[int, str],
        before: RoundClusters | None,
    ) -> tuple[RoundClusters | None, dict[int, Any]]:
        """Find the clusters of a round; None while no client has sent a support.

        Args:
            server_round: the round's number.
            messages: the clients' readable messages of this round, by node.
            unread: the reasons why other clients have no readable message.
            before: the clusters of the round before.

        Returns:
            The clusters, and the support or signature of each client that they are made of.
        """
        changed = True
        if self.keeps_first:
            changed, unread = self.first.take(server_round, messages, unread)
            messages = self.first.messages
            self._history.forget_others(messages)
        if not messages:
            found = None
        elif changed or before is None:
            found = self._history.cluster(server_round, messages, unread)
        else:
            left_out = {n: why for n, why in before.left_out.items() if n in messages}
            found = replace(before, server_round=server_round, left_out={**unread, **left_out})
        for node, why in (unread if found is None else found.left_out).items():
            who = self._names.of(node)
            log.warning("round %d: client %s is in no cluster: %s", server_round, who, why)
        return found, {node: message.content for node, message in messages.items()}
