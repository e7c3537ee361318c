"""What differs in the layers of a checkpoint and a model."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from modelkin.core.fingerprints.labels import ranges
from modelkin.core.fingerprints.relations.differences import Differences, is_left_out
from modelkin.core.fingerprints.relations.layer_maps import Layer, LayerMap, layers_of
from modelkin.core.fingerprints.relations.relation import Relation, RelationName
from modelkin.core.fingerprints.relations.wording import plain, runs_in_words

__all__ = ["relations_of_layers", "runs_of"]


def relations_of_layers(found: Differences) -> list[Relation]:
    """Say of each stack which layers are repeated, dropped, moved or not found."""
    stacks = dict.fromkeys(stack for stack, _ in found.layers.layers)
    relations = (_of_stack(found, stack) for stack in stacks)
    return [each for each in relations if each is not None]


def _of_stack(found: Differences, stack: str) -> Relation | None:
    """What became of the layers of a stack; None where all are in place, or it is not clear."""
    layers = found.layers
    own = [layer for layer in layers.layers if layer[0] == stack]
    order = [layers.origins[layer] for layer in own if layer in layers.origins]
    unknown = [layer for layer in own if layer not in layers.origins]
    if not found.missing_layers.issuperset(unknown):
        return None
    added = _not_found(found, stack, unknown)
    if not order:
        return Relation("added", (found.comparison.model,), added)
    stacks = list(dict.fromkeys(of for of, _ in order))
    # Where layers of several stacks are mixed, each is named with its own.
    name = f"{found.model}'s {plain(stacks[0])}" if _is_one_of(layers, stacks) else found.model
    words = runs_in_words(runs_of(layers, order), len(stacks) > 1)
    dropped = [] if _has_hidden(found, stack) else _dropped(layers, order)
    relation: RelationName
    if len(set(order)) < len(order):
        relation = "depth_up_scaled"
        sentence = f"depth up-scaled: layers {words} of {name}, in this order"
    elif any(layers.of.index(a) > layers.of.index(b) for a, b in pairwise(order)):
        relation, sentence = "layers_moved", f"layers of {name} in another order: {words}"
    elif dropped and unknown and _numbers(dropped) != _numbers(unknown):
        # Whether some were dropped, or came to the model from this one, nothing says.
        relation, sentence = "added", f"layers {words} of {name}"
    elif dropped and not unknown:
        noun = "layer" if len(dropped) == 1 else "layers"
        numbers = ranges(_numbers(dropped))
        relation, sentence = "layers_dropped", f"{noun} {numbers} of {name} dropped"
    elif added:
        relation, sentence, added = "added", added, ""
    else:
        return None
    models = (found.comparison.model,)
    return Relation(relation, models, f"{sentence}; {added}" if added else sentence)


def _has_hidden(found: Differences, stack: str) -> bool:
    """Whether a stack has layers that cannot be compared, such as ones of mostly zeros."""
    hidden = (each for each in found.comparison.ours.tensors if is_left_out(each))
    layers = {layer for each in hidden for layer in layers_of(each) if layer[0] == stack}
    return not layers <= set(found.layers.layers)


def _is_one_of(layers: LayerMap, stacks: Sequence[str]) -> bool:
    """Whether the model has other stacks than the one that layers come from."""
    return len(stacks) == 1 and any(stack != stacks[0] for stack, _ in layers.of)


def _not_found(found: Differences, stack: str, unknown: Sequence[Layer]) -> str:
    if not unknown:
        return ""
    numbers = ranges(number for _, number in unknown)
    several = len({of for of, _ in found.layers.layers}) > 1
    where = f" of {plain(stack)}" if several else ""
    noun, verb = ("layer", "is") if len(unknown) == 1 else ("layers", "are")
    return f"its {noun} {numbers}{where} {verb} not found in {found.model}"


def _dropped(layers: LayerMap, order: Sequence[Layer]) -> list[Layer]:
    """The model's layers that are nowhere, of the stacks that others are from."""
    held = set(layers.origins.values()).union(*layers.copies.values())
    stacks = {stack for stack, _ in order}
    return [each for each in layers.of if each not in held and each[0] in stacks]


def _numbers(layers: Sequence[Layer]) -> list[int]:
    return [number for _, number in layers]


def runs_of(layers: LayerMap, order: Sequence[Layer]) -> list[list[Layer]]:
    """A model's layers as stretches that follow each other."""
    runs = list[list[Layer]]()
    for layer in order:
        if runs and layer == layers.behind(runs[-1][-1]):
            runs[-1].append(layer)
        else:
            runs.append([layer])
    return runs
