"""What differs in the layers of a checkpoint and a model."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from modelkin.core.fingerprints.places import ranges
from modelkin.core.fingerprints.relations.differences import Differences
from modelkin.core.fingerprints.relations.layer_maps import Layer, LayerMap
from modelkin.core.fingerprints.relations.relation import Relation, RelationName
from modelkin.core.fingerprints.relations.wording import listed, runs_in_words

__all__ = ["relation_of_layers", "runs_of"]


def relation_of_layers(found: Differences) -> Relation | None:
    """Say which layers are repeated, dropped, moved or not found; None where all are in place."""
    layers = found.layers
    is_whole = layers.is_identity and len(layers.layers) == len(layers.of)
    if not layers.origins or (is_whole and not found.missing_layers):
        return None
    unknown = [layer for layer in layers.layers if layer not in layers.origins]
    if not found.missing_layers.issuperset(unknown):
        return None
    order = [layers.origins[layer] for layer in layers.layers if layer in layers.origins]
    several = len({stack for stack, _ in layers.of}) > 1
    words = runs_in_words(runs_of(layers, order), several)
    added = _not_found(found, unknown)
    if len(set(order)) < len(order):
        name: RelationName = "depth_up_scaled"
        sentence = f"depth up-scaled: layers {words} of {found.model}, in this order"
    elif any(layers.of.index(a) > layers.of.index(b) for a, b in pairwise(order)):
        name, sentence = "layers_moved", f"layers of {found.model} in another order: {words}"
    elif (dropped := _dropped(layers, order)) and not is_whole:
        numbers = (
            listed([runs_in_words([[each]], True) for each in dropped])
            if several
            else ranges(number for _, number in dropped)
        )
        noun = "layer" if len(dropped) == 1 else "layers"
        name, sentence = "layers_dropped", f"{noun} {numbers} of {found.model} dropped"
    elif added:
        name, sentence, added = "added", added, ""
    else:
        return None
    return Relation(name, (found.comparison.model,), f"{sentence}; {added}" if added else sentence)


def _not_found(found: Differences, unknown: Sequence[Layer]) -> str:
    if not unknown:
        return ""
    numbers = ranges(number for _, number in unknown)
    noun, verb = ("layer", "is") if len(unknown) == 1 else ("layers", "are")
    return f"its {noun} {numbers} {verb} not found in {found.model}"


def _dropped(layers: LayerMap, order: Sequence[Layer]) -> list[Layer]:
    """The model's layers that are nowhere, of stacks of which others are."""
    held = set(order).union(*layers.copies.values())
    stacks = {stack for stack, _ in order}
    return [each for each in layers.of if each not in held and each[0] in stacks]


def runs_of(layers: LayerMap, order: Sequence[Layer]) -> list[list[Layer]]:
    """A model's layers as stretches that follow each other."""
    runs = list[list[Layer]]()
    for layer in order:
        if runs and layer == layers.behind(runs[-1][-1]):
            runs[-1].append(layer)
        else:
            runs.append([layer])
    return runs
