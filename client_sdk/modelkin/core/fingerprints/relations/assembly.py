"""Checkpoints that were put together of tensors of several models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from modelkin.core.fingerprints.comparison import ALL_LINES, MODEL_LIMIT, Comparison, compare
from modelkin.core.fingerprints.relations.changes import CHANGED
from modelkin.core.fingerprints.relations.differences import Differences
from modelkin.core.fingerprints.relations.layer_maps import Layer, layers_of
from modelkin.core.fingerprints.relations.relation import Relation
from modelkin.core.fingerprints.relations.wording import (
    listed,
    percent,
    runs_in_words,
    tensors_in_words,
)

__all__ = ["assembled", "sources_of"]

_FAR: Final = 0.25
"""A model with so much less of a tensor than another one is not where it comes from."""
_KIN: Final = 0.9
"""The same of one that is kin of the other, where the other has all lines of the tensor."""


def sources_of(comparisons: Sequence[Comparison]) -> dict[int, set[int]]:
    """The models that tensors come from, by their number, and these tensors.

    The nearest model has all that no other one has clearly more of.
    """
    first = comparisons[0]
    own = {0: {number for number, each in enumerate(first.ours.tensors) if each.lines}}
    for at, each in enumerate(comparisons[1:], 1):
        rest = [number for number in own[0] if number in each.sources]
        far = {number for number in rest if _share(first, number) <= _FAR * _share(each, number)}
        all_found = {
            number
            for number in rest
            if _share(each, number) >= ALL_LINES and _share(first, number) <= _KIN
        }
        if all_found and _is_changed(first, own[0] - all_found) and _are_kin(each, first):
            all_found = set()
        taken = all_found | (far if far - all_found and not _are_kin(each, first) else set())
        if taken:
            own[at] = taken
            own[0] -= taken
    return own


def _is_changed(first: Comparison, numbers: set[int]) -> bool:
    """Whether the nearest model has most of these tensors changed.

    Then it may be a copy of fewer bits, and its kin a model that took layers of the checkpoint.
    """
    equal = sum(_share(first, number) >= ALL_LINES for number in numbers)
    return 2 * equal < len(numbers)


def _share(comparison: Comparison, number: int) -> float:
    return float(comparison.of_tensor[number] / max(1, comparison.held[number]))


def _are_kin(one: Comparison, other: Comparison) -> bool:
    return compare(one.theirs, other.model, other.theirs).log10_p < MODEL_LIMIT


def assembled(parts: Sequence[Differences]) -> list[Relation]:
    """Say which tensors come from which model."""
    ours = parts[0].comparison.ours
    models = tuple(part.comparison.model for part in parts)
    sentence = _in_order(parts) or "; ".join(
        f"{tensors_in_words(ours, _found(part))} from {part.model}" for part in parts
    )
    added = {number for group in parts[0].added for number in group.numbers}
    missing = parts[0].missing | added
    if missing:
        sentence += f"; not found: {tensors_in_words(ours, missing)}"
    found = [Relation("assembled", models, f"assembled: {sentence}")]
    matched = [match for part in parts for match in part.matches if not match.is_open]
    comparable = sum(match.comparable for match in matched)
    equal = sum(match.found for match in matched) / comparable if comparable else 0.0
    if equal < ALL_LINES:
        words = f"changed, {CHANGED}: {percent(equal)} of lines unchanged"
        found.append(Relation("changed", models, words))
    return found


def _found(part: Differences) -> list[int]:
    """The tensors that a model has, and those of few lines in a layer that it has."""
    tensors, origins = part.comparison.ours.tensors, part.layers.origins.keys()
    return [
        number
        for number in part.numbers
        if number in part.comparison.sources or layers_of(tensors[number]) & origins
    ]


def _in_order(parts: Sequence[Differences]) -> str | None:
    """The layers by their order, where each comes from one model and some from another place."""
    origins = dict[Layer, tuple[int, Layer]]()
    for at, part in enumerate(parts):
        for layer, origin in part.layers.origins.items():
            if layer in origins:
                return None
            origins[layer] = (at, origin)
    if all(layer[1] == origin[1] for layer, (_, origin) in origins.items()):
        return None
    runs = list[tuple[int, list[Layer]]]()
    for at, origin in (origins[layer] for layer in sorted(origins)):
        if runs and runs[-1][0] == at and origin == parts[at].layers.behind(runs[-1][1][-1]):
            runs[-1][1].append(origin)
        else:
            runs.append((at, [origin]))
    words = [f"{runs_in_words([run])} of {parts[at].model}" for at, run in runs]
    others = [
        f"{tensors_in_words(part.comparison.ours, rest)} from {part.model}"
        for part in parts
        if (rest := [n for n in _found(part) if not layers_of(part.comparison.ours.tensors[n])])
    ]
    return "; ".join([f"layers {listed(words)}, in this order", *others])
