"""Which layer of a model each layer of a checkpoint has its lines from, and what order that is."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from modelkin.core.fingerprints.comparison import TENSOR_KEYS, TENSOR_LIMIT, Comparison, chance
from modelkin.core.fingerprints.fingerprint import Fingerprint
from modelkin.core.fingerprints.relations.positions import position_of
from modelkin.core.fingerprints.tensors import LinesOfTensor

__all__ = ["Layer", "LayerMap", "layer_map", "layers_of"]

Layer: TypeAlias = tuple[str, int]
"""A stack and a number."""

_EQUAL: Final = 0.8
"""Layers with so many of the lines that the first has are copies of it."""
_OTHERS: Final = 0.5
"""The share of a tensor's lines from other layers that leaves open where its layer is from."""


def layers_of(tensor: LinesOfTensor) -> set[Layer]:
    """The layers that have a tensor: one for each of its names that tells one."""
    places = [position_of(name) for name in tensor.names]
    return {(place.stack, place.layer) for place in places if place.layer is not None}


@dataclass(frozen=True)
class LayerMap:
    """The layers of a model that those of a checkpoint come from.

    Attributes:
        layers: the checkpoint's layers with lines to compare, ascending.
        of: the model's.
        origins: the layer that each comes from, where it is found; that of the same place, or the
            one behind the layer before, where the model has copies of it.
        copies: all layers that it may come from.
    """

    layers: Sequence[Layer]
    of: Sequence[Layer]
    origins: Mapping[Layer, Layer]
    copies: Mapping[Layer, frozenset[Layer]]

    @property
    def is_identity(self) -> bool:
        """Whether each layer that is found has its own place, among equally many."""
        places = {layer: self._place(self.layers, layer) for layer in self.layers}
        return all(places[a] == self._place(self.of, b) for a, b in self.origins.items())

    @staticmethod
    def _place(layers: Sequence[Layer], layer: Layer) -> tuple[int, int]:
        """The ordinal of a layer's stack, and its own in it."""
        stacks = list(dict.fromkeys(stack for stack, _ in layers))
        same = [each for each in layers if each[0] == layer[0]]
        return stacks.index(layer[0]), same.index(layer)

    def behind(self, layer: Layer) -> Layer | None:
        """The model's next layer of the same stack."""
        at = self.of.index(layer) + 1
        return self.of[at] if at < len(self.of) and self.of[at][0] == layer[0] else None


def layer_map(comparison: Comparison, numbers: Collection[int]) -> LayerMap:
    """Find where layers come from.

    Args:
        comparison: of the checkpoint and the model.
        numbers: the checkpoint's tensors that may come from this model.
    """
    ours, theirs = comparison.ours, comparison.theirs
    mine = [layers_of(each) if number in numbers else set() for number, each in _all(ours)]
    its = [layers_of(each) for _, each in _all(theirs)]
    met = _met(comparison, its)
    counts = defaultdict[Layer, Counter[Layer]](Counter)
    for number, places in met.items():
        for layer in mine[number]:
            counts[layer].update({place: len(keys) for place, keys in places.items()})
    members = defaultdict[Layer, list[_Met]](list)
    for number, places in met.items():
        for layer in mine[number]:
            members[layer].append(places)
    lines, lines_of_model = _lines(ours, mine), _lines(theirs, its)
    layers, of = sorted(lines), sorted(lines_of_model)
    limit = TENSOR_LIMIT - math.log10(max(1, len(layers) * len(of)))
    copies = {}
    for layer in layers:
        found = _copies(counts[layer])
        if not found or any(_is_from_others(places, found) for places in members[layer]):
            continue
        least = min(counts[layer][each] for each in found)
        lines_found = lines_of_model[next(iter(found))]
        if chance(least, lines[layer], lines_found, ours.scale)[1] < limit:
            copies[layer] = found
    return LayerMap(layers, of, _origins(LayerMap(layers, of, {}, copies)), copies)


_Met: TypeAlias = Mapping[Layer, set[int]]
"""The keys of a tensor that each layer of a model has."""


def _met(comparison: Comparison, its: Sequence[set[Layer]]) -> dict[int, _Met]:
    """The keys of each of the checkpoint's tensors that layers of the model have."""
    meetings = comparison.meetings
    met = defaultdict[int, dict[Layer, set[int]]](lambda: defaultdict(set))
    for first, second, at in zip(
        meetings.first.tolist(), meetings.second.tolist(), meetings.at.tolist(), strict=True
    ):
        for layer in its[second]:
            met[first][layer].add(at)
    return dict(met)


def _is_from_others(places: _Met, found: Collection[Layer]) -> bool:
    """Whether a tensor has most of its lines from other layers than those of its own layer."""
    inside = set[int]().union(*(places.get(layer, set()) for layer in found))
    anywhere = set[int]().union(*places.values())
    return len(anywhere) - len(inside) >= max(TENSOR_KEYS, _OTHERS * len(anywhere))


def _all(fingerprint: Fingerprint) -> list[tuple[int, LinesOfTensor]]:
    return list(enumerate(fingerprint.tensors))


def _lines(fingerprint: Fingerprint, layers: Sequence[set[Layer]]) -> dict[Layer, Counter[int]]:
    """The lines of each layer, by their length."""
    found = defaultdict[Layer, Counter[int]](Counter)
    for tensor, places in zip(fingerprint.tensors, layers, strict=True):
        for layer in places if tensor.lines else ():
            found[layer].update(tensor.lines)
    return dict(found)


def _copies(counts: Counter[Layer]) -> frozenset[Layer]:
    """The layers that have most of the lines."""
    if not counts or max(counts.values()) < TENSOR_KEYS:
        return frozenset()
    most = max(counts.values())
    return frozenset(layer for layer, count in counts.items() if count >= _EQUAL * most)


def _origins(found: LayerMap) -> dict[Layer, Layer]:
    origins, before = dict[Layer, Layer](), None
    for layer in found.layers:
        copies = found.copies.get(layer)
        if copies:
            after = None if before is None else found.behind(before)
            wanted = (after, layer)
            before = next((each for each in wanted if each in copies), min(copies))
            origins[layer] = before
    return origins
