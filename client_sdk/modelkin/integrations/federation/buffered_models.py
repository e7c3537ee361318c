"""``BufferedModels``: the models of a federation without rounds, one or one for each cluster.

It knows what each client trains, and which model takes its next step. A carrier sends models and
brings what came back, in any order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass
from itertools import count

from modelkin.errors import InvalidParameter
from modelkin.federation.buffer import Arrays, Counted, ModelBuffer, Update

__all__ = ["BufferedModels", "Group", "Lent"]

Group = int | None
"""The number of a cluster, or None for the clients of no cluster."""


@dataclass(frozen=True, slots=True, eq=False)
class Lent:
    """A model that a client trains.

    Attributes:
        version: its number.
        model: its arrays, by name.
    """

    version: int
    model: Arrays


class BufferedModels:
    """A model of each group of clients, with the updates that wait for its next step.

    A client trains each version once: it waits for the next one, and for no other client. A step is
    taken by ``size`` updates, or by fewer where no other client of the group can send one.

    Args:
        first: version 0 of each group.
        size: the updates of a step.
        max_staleness: the largest staleness with which an update counts.
        rate: the server's learning rate.
        group_of: the group of a client that has answered; a new one then gets the first weights.
            None for one model, which new clients get as it is.

    Raises:
        InvalidParameter: an argument is out of its range.
    """

    def __init__(
        self,
        first: Arrays,
        *,
        size: int,
        max_staleness: int,
        rate: float = 1.0,
        group_of: Callable[[int], Group] | None = None,
    ) -> None:
        self._first = ModelBuffer(first, size=size, max_staleness=max_staleness, rate=rate)
        self._group_of = group_of
        self._lent: dict[int, Lent] = {}
        self._answered: dict[int, int | None] = {}
        """The version that each client has trained last."""
        self._failed = set[int]()
        """The clients that wait for the next step, since they sent no update."""
        self._groups: dict[int, Group] = {}
        """The group of each client that has answered."""
        self._buffers: dict[Group, ModelBuffer] = {}
        self._numbers = count(1)
        self.left_out: dict[int, str] = {}
        """Why the last answer of a client did not count, by node; the carrier empties it."""

    @property
    def models(self) -> dict[Group, Arrays]:
        """The model of each group."""
        return {group: buffer.model for group, buffer in self._buffers.items()}

    @property
    def members(self) -> dict[Group, list[int]]:
        """The clients of each group, of those that have answered."""
        found: dict[Group, list[int]] = {}
        for node, group in sorted(self._groups.items()):
            found.setdefault(group, []).append(node)
        return found

    @property
    def is_idle(self) -> bool:
        """Whether no client trains, and no update waits."""
        return not self._lent and not any(map(len, self._buffers.values()))

    def offer(self, node: int) -> Lent | None:
        """The model that a client should train; None if it trains, or has trained the newest."""
        if node in self._lent or node in self._failed:
            return None
        is_placed = node in self._groups or self._group_of is None
        buffer = (
            self._buffers.get(self._groups.get(node), self._first) if is_placed else self._first
        )
        if self._answered.get(node) == buffer.version:
            return None
        return Lent(buffer.version, buffer.model)

    def lend(self, node: int, lent: Lent) -> None:
        """Note that a client was sent a model."""
        self._lent[node] = lent

    def take(self, node: int, trained: Arrays, weight: float) -> None:
        """Take a client's answer, and note in :attr:`left_out` if it does not count.

        Args:
            node: the client.
            trained: the arrays of the model that it was lent, after its training.
            weight: such as its examples.
        """
        lent = self._lent.pop(node)
        self._answered[node] = lent.version
        self._regroup()
        try:
            update = Update(lent.version, lent.model, trained, weight)
            self._buffers[self._groups[node]].add(str(node), update)
        except InvalidParameter as error:
            self.left_out[node] = str(error)

    def refuse(self, node: int, why: str) -> None:
        """Note why an answer has no update; its client is asked again after the next step."""
        del self._lent[node]
        self._failed.add(node)
        self.left_out[node] = why

    def forget(self, node: int, why: str) -> None:
        """Forget a client; if it returns, it is new. An update of it that waits still counts."""
        self._lent.pop(node, None)
        self._answered.pop(node, None)
        self._groups.pop(node, None)
        self._failed.discard(node)
        self.left_out[node] = why

    def ask_again(self) -> None:
        """Let all clients train their model again, where no answer to it counted."""
        self._answered = dict.fromkeys(self._answered)
        self._failed.clear()

    def _regroup(self) -> None:
        """Follow the clusters as they are now; waiting updates move with their clients.

        A new cluster begins with the model that most of its clients have trained so far. One whose
        clients are all forgotten stays until no update of theirs waits.
        """
        group_of = self._group_of or (lambda _: None)
        before, self._groups = self._groups, {node: group_of(node) for node in self._answered}
        members = self.members
        for group in members.keys() - self._buffers.keys():
            known = Counter(before[node] for node in members[group] if node in before)
            origin = self._buffers[known.most_common(1)[0][0]] if known else self._first
            self._buffers[group] = origin.copy()
        for node, old in before.items():
            group = self._groups.get(node, old)
            for update in self._buffers[old].take(str(node)) if group != old else ():
                try:
                    self._buffers[group].add(str(node), update)
                except InvalidParameter as error:
                    self.left_out[node] = f"its cluster is {group} now, and {error}"
        self._buffers = {
            group: buffer for group, buffer in self._buffers.items() if group in members or buffer
        }

    def ready(self, present: Collection[int]) -> list[Group]:
        """The groups whose models can take a step.

        Args:
            present: the clients that would train a model if they got one.
        """
        working = [*self._lent, *(node for node in present if self.offer(node) is not None)]
        has_new = any(node not in self._groups for node in working)
        busy = {self._groups.get(node) for node in working}
        return [
            group
            for group, buffer in self._buffers.items()
            if buffer.is_full or (len(buffer) and not has_new and group not in busy)
        ]

    def step(self, group: Group) -> tuple[int, list[Counted]]:
        """Let a group's model take a step; return its new version, and what the step is made of."""
        version = next(self._numbers)
        self._failed.clear()
        return version, self._buffers[group].step(version)
