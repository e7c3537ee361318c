"""``SharedLayers``: the layers that one round shares, and the part that each node gets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from flwr.app import Array, ArrayRecord, Message, RecordDict

from modelkin.federation.learngenes.aggregate import Aggregate
from modelkin.federation.learngenes.layers import LayerChoice, tightened_depth
from modelkin.federation.learngenes.learngene import Learngene
from modelkin.integrations.flower.learngenes.layers import layout_of, part_of

__all__ = ["SharedLayers"]


class SharedLayers:
    """The layers that one round shares: the learngene, and more layers while sharing tightens.

    Args:
        arrays: the whole model that the round begins with.
        learngene: the model's learngene.
        tightens: whether a node sends more than the learngene when asked, by node; missing for
            nodes that have not answered yet.
    """

    def __init__(
        self, arrays: ArrayRecord, learngene: Learngene, tightens: dict[int, bool]
    ) -> None:
        self.arrays = arrays
        self.names = learngene.names
        """The names of the shared arrays."""
        self.num_layers = len(learngene.layers)
        """The number of shared layers."""
        self._learngene, self._tightens = learngene, tightens
        self._sent: dict[int, tuple[str, ...]] = {}

    @classmethod
    def of(
        cls, arrays: ArrayRecord, choice: LayerChoice, *, buffers: bool, after: SharedLayers | None
    ) -> SharedLayers:
        """The shared layers of a round: the learngene of a model.

        Args:
            arrays: the model.
            choice: how many layers, which share of the bytes, or which arrays by pattern.
            buffers: whether the learngene has running statistics, too.
            after: the round before, which knows the nodes that tighten.

        Raises:
            InvalidParameter: the choice does not fit the model.
        """
        learngene = Learngene.of(layout_of(arrays), choice, buffers=buffers)
        return cls(arrays, learngene, {} if after is None else after._tightens)

    def tighten(self, server_round: int, num_rounds: int, share: float) -> None:
        """Share more layers than the learngene in the first rounds.

        Args:
            server_round: the number of the round, from 1.
            num_rounds: the number of rounds of the run.
            share: the part of the run, 0 to 1, after which only the learngene is shared.
        """
        depth, others = len(self._learngene.layers), self._learngene.others
        total = depth + len(others)
        self.num_layers = tightened_depth(depth, total, server_round - 1, num_rounds, share)
        more = others[: self.num_layers - depth]
        self.names = (*self.learngene_names, *(name for layer in more for name in layer))

    @property
    def learngene_names(self) -> tuple[str, ...]:
        """The names of the learngene's arrays."""
        return self._learngene.names

    @property
    def nodes(self) -> Iterable[int]:
        """The nodes that were sent a part of the model."""
        return self._sent.keys()

    @property
    def parts(self) -> dict[int, ArrayRecord]:
        """The arrays that each node was sent, and may send back."""
        return {node: part_of(self.arrays, names) for node, names in self._sent.items()}

    def send(self, message: Message) -> None:
        """Cut a training message, and note the arrays that its node gets."""
        self.cut(message)
        node = message.metadata.dst_node_id
        self._sent[node] = self._names_for(node)

    def cut(self, message: Message) -> None:
        """Leave only the shared arrays in a message."""
        content = RecordDict(dict(message.content))  # messages of a round share their content
        for name, arrays in list(content.array_records.items()):
            content[name] = self.part(arrays, message.metadata.dst_node_id)
        message.content = content

    def part(self, arrays: ArrayRecord, node: int) -> ArrayRecord:
        """The part of a whole model that a node gets."""
        return part_of(arrays, self._names_for(node))

    def note(self, sent: Mapping[int, Iterable[str]]) -> None:
        """Note the nodes that sent only the learngene though they were asked for more.

        Args:
            sent: the names of the arrays that each node sent.
        """
        own = set(self.learngene_names)
        for node, names in sent.items():
            if set(self._sent[node]) != own:
                self._tightens[node] = not own.issuperset(names)

    def _names_for(self, node: int) -> tuple[str, ...]:
        """The names for a node; one that sends only the learngene gets no more."""
        return self.names if self._tightens.get(node, True) else self.learngene_names

    def complete(self, own: ArrayRecord, mean: Aggregate) -> ArrayRecord:
        """Make a whole model of a node's arrays; arrays that the node lacks move nothing.

        Args:
            own: the arrays that the node sent.
            mean: the shared arrays, averaged over all members.
        """
        found: dict[str, Array] = {}
        for name, old in self.arrays.items():
            if name in mean.kept or name not in mean.tensors:
                found[name] = old
            else:
                found[name] = own[name] if name in own else Array(mean.tensors[name])
        return ArrayRecord(found)

    def whole(self, part: ArrayRecord) -> ArrayRecord:
        """The model with some arrays replaced, in the types that they had."""
        found: dict[str, Array] = {}
        for name, old in self.arrays.items():
            if name not in part:
                found[name] = old
            elif part[name].dtype == old.dtype:
                found[name] = part[name]
            else:
                found[name] = Array(part[name].numpy().astype(np.dtype(old.dtype)))
        return ArrayRecord(found)
