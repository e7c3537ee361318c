"""``SupportClusters``: the clusters of clients by the supports in their replies.

An engine takes the values of messages out of its replies, and hands them over by node.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, Generic, TypeVar

from modelkin.errors import ModelkinError
from modelkin.integrations.federation.client_names import ClientNames
from modelkin.integrations.federation.cluster_history import ClusterHistory, RoundClusters
from modelkin.integrations.federation.first_supports import FirstSupports
from modelkin.integrations.federation.messages import MessageLimits, SupportMessage

__all__ = ["SupportClusters"]

log = logging.getLogger("modelkin.integrations")

_MAX_REASON: Final = 500
"""The most characters of the reason that a client sends."""

W = TypeVar("W")
"""The weights of a model, as an engine holds them."""


class SupportClusters(Generic[W]):
    """The clusters of clients by their supports, found in each round.

    Args:
        history: numbers the clusters, so that a cluster keeps its number from round to round.
        names: the nodes' names, noted as they answer.
        keeps_first: whether clients are compared by their supports at the first round's weights.
        forget_after: rounds without an answer after which a client is forgotten; None for never.
        k_max: the largest share of indices of a client's support; None for the usual one.
        when: how the log names a round, with ``{}`` for its number.
        missing: the reason to give where a client sent no support.

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
        missing: str,
        when: str = "round {}",
    ) -> None:
        self._history, self.names = history, names
        self.keeps_first = keeps_first
        self.first = FirstSupports[W](forget_after)
        """The supports at the first round's weights; empty unless they are kept."""
        self._when = when
        self._k_max, self._limits, self._missing = k_max, MessageLimits(), missing
        self.present = frozenset[int]()
        """The connected nodes."""

    def begin(self, weights: W, num_values: int, present: Iterable[int]) -> None:
        """Begin a round with these weights, of so many values, and connected nodes."""
        self._limits = MessageLimits.of(num_values, self._k_max)
        self.present = frozenset(present)
        if self.keeps_first:
            self.first.begin(weights)

    def cluster_of(self, node: int) -> int | None:
        """The cluster of a client, or None."""
        return self._history.cluster_of(node)

    def read(
        self, sent: Mapping[int, Mapping[str, Any] | None]
    ) -> tuple[dict[int, SupportMessage], dict[int, str]]:
        """Read what clients sent; return messages, and reasons for missing ones.

        Args:
            sent: the values of each client's message, by node; None for a reply without them.
        """
        messages, unread = dict[int, SupportMessage](), dict[int, str]()
        for node, values in sent.items():
            if values is None:
                unread[node] = self._missing
                continue
            self.names.note(node, values, self.present)
            if "refused" in values:
                why = "".join(c if c.isprintable() else " " for c in str(values["refused"]))
                unread[node] = f"it could make no support: {why[:_MAX_REASON]}"
                continue
            try:
                messages[node] = SupportMessage.from_values(values, self._limits)
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
        when = self._when.format(server_round)
        for node, why in (unread if found is None else found.left_out).items():
            who = self.names.of(node)
            log.warning("%s: client %s is in no cluster: %s", when, who, why)
        nodes = () if found is None else found.nodes
        return found, {node: messages[node].content for node in nodes}
