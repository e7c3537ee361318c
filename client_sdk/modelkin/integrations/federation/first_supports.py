"""``FirstSupports``: the support of each client at the weights of the first round.

Supports can be compared if they were taken at the same weights. Once clusters train apart, or if a
round samples only some clients, the newest supports of two clients are of different weights: then
kin are no nearer than other clients. So a new client gets the weights of the first round, and the
support in its answer is kept.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Generic, TypeVar

from modelkin.errors import InvalidParameter
from modelkin.integrations.federation.messages import SupportMessage

__all__ = ["FirstSupports", "check_forget_after"]

W = TypeVar("W")
"""The weights of a model, as an engine holds them."""

_OTHER_WEIGHTS = (
    "its support is of other weights than those of the first round, which it gets the next time"
)


def check_forget_after(forget_after: object) -> None:
    """Raise :class:`InvalidParameter` for what is neither None nor a number of rounds."""
    if forget_after is not None and (type(forget_after) is not int or forget_after < 1):
        raise InvalidParameter(
            f"forget_after must be a number of rounds, 1 or more, not {forget_after!r}",
            field="forget_after",
        )


class FirstSupports(Generic[W]):
    """One support of each client, at the same weights for all.

    Args:
        forget_after: rounds without an answer after which a client is forgotten; None for never.

    Raises:
        InvalidParameter: ``forget_after`` is out of its range.
    """

    def __init__(self, forget_after: int | None = None) -> None:
        check_forget_after(forget_after)
        self._forget_after = forget_after
        self.weights: W | None = None
        """The weights of the first round; None before it."""
        self._is_first = False
        self._lent: set[int] = set()
        self._silent: set[int] = set()
        self._seen: dict[int, int] = {}
        self._taken = frozenset[int]()
        self.messages: dict[int, SupportMessage] = {}
        """The message of each known client."""

    @property
    def late(self) -> frozenset[int]:
        """The clients that train at the weights of the first round in a later one."""
        return frozenset() if self._is_first else frozenset(self._lent)

    def begin(self, arrays: W) -> None:
        """Begin a round with common weights; keep the weights of the first round."""
        self._is_first = self.weights is None
        if self.weights is None:
            self.weights = arrays
        self._lent = set()

    def restore(self, weights: W, messages: Mapping[int, SupportMessage], seen: int) -> None:
        """Know clients of an earlier run by their messages at its first weights.

        Args:
            weights: the weights of the first round of that run.
            messages: the message of each client.
            seen: the last round of that run.
        """
        self.weights = weights
        self.messages.update(messages)
        self._seen.update(dict.fromkeys(messages, seen))

    def lend(self, node: int) -> W | None:
        """The weights that a client gets in place of the round's, or None.

        A client that answered without a support gets the round's weights, since it would else
        always train at the first ones.
        """
        if node in self.messages or node in self._silent:
            return None
        self._lent.add(node)
        return None if self._is_first else self.weights

    def take(
        self,
        server_round: int,
        messages: Mapping[int, SupportMessage],
        unread: Mapping[int, str],
    ) -> tuple[bool, dict[int, str]]:
        """Keep the supports of new clients, and forget clients not seen for long.

        Args:
            server_round: the round's number.
            messages: the clients' readable messages of this round, by node.
            unread: the reasons why other clients have no readable message.

        Returns:
            Whether the known clients changed; and the reason why a client that answered is unknown.
        """
        before = set(self.messages)
        unknown = {node: why for node, why in unread.items() if node not in before}
        self._silent.update(unknown)
        for node, message in messages.items():
            if node in self._lent:
                self.messages.setdefault(node, message)
            elif node not in before:
                self._silent.discard(node)
                unknown[node] = _OTHER_WEIGHTS
        self._seen.update(dict.fromkeys((*messages, *unread), server_round))
        if self._forget_after is not None:
            last = server_round - self._forget_after
            for node in [node for node, seen in self._seen.items() if seen <= last]:
                self.forget(node)
        known, self._taken = self._taken, frozenset(self.messages)
        return self._taken != known, unknown

    def forget(self, node: int) -> None:
        """Forget a client; if it returns, it is new."""
        self._seen.pop(node, None)
        self.messages.pop(node, None)
        self._silent.discard(node)

    def members(
        self,
        clusters: Mapping[int, tuple[int, ...]],
        replied: Collection[int],
        trained: Collection[int],
    ) -> dict[int, tuple[int, ...]]:
        """The members of each cluster whose training counts in its model in this round.

        These members replied. A client that trained at the first round's weights counts only where
        its cluster has no model yet, lest it take the cluster back to the start.

        Args:
            clusters: the nodes of each cluster.
            replied: the nodes that replied.
            trained: the clusters that have a model.
        """
        late, found = self.late, dict[int, tuple[int, ...]]()
        for cluster, nodes in clusters.items():
            left_out = late if cluster in trained else frozenset()
            own = tuple(node for node in nodes if node in replied and node not in left_out)
            if own:
                found[cluster] = own
        return found
