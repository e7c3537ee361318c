"""What is left beside the structure: how many lines are equal, and in which tensors they differ."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Hashable
from typing import Final

import numpy as np

from modelkin.core.fingerprints.comparison import ALL_LINES
from modelkin.core.fingerprints.lines import present
from modelkin.core.fingerprints.relations.differences import Differences, is_left_out
from modelkin.core.fingerprints.relations.layer_maps import layers_of
from modelkin.core.fingerprints.relations.positions import position_of
from modelkin.core.fingerprints.relations.relation import Relation, RelationName
from modelkin.core.fingerprints.relations.wording import (
    counted,
    percent,
    tensors_in_words,
)
from modelkin.core.fingerprints.sources import Parent
from modelkin.core.fingerprints.tensors import LinesOfTensor

__all__ = ["CHANGED", "changed_alone", "part_of", "rest_of", "used_of"]

CHANGED: Final = "as by fine-tuning or rounding"
"""What changes lines like that; values do not tell which of the two it was."""
_PARTIAL: Final = {"vocabulary_resized", "head_changed", "added", "pruned", "widened"}
_USED: Final = 0.1
"""The share of a tensor's lines from which on a part has something of it."""
_RARE: Final = 1e-5
"""The probability below which tensors of equal lines are not merely lucky among changed ones."""


def rest_of(
    found: Differences, parent: Parent, structure: Collection[RelationName]
) -> Relation | str:
    """What is left beside the structure: a relation, or words behind the last sentence."""
    has_structure = bool(structure)
    is_partial = has_structure and (
        not _PARTIAL.isdisjoint(structure) or any(not match.is_steady for match in found.matches)
    )
    model = (parent.model,)
    if found.equal >= ALL_LINES:
        left_out = _left_out(found)
        if has_structure:
            return f"{found.rest}{left_out}"
        if parent.verdict == "copy":
            equal = min(found.equal, found.comparison.share, found.comparison.share_of_model)
            lines = "all lines" if equal == 1 else f"{percent(equal)} of the lines"
            words = f"copy of {found.model}: {lines} of both are equal{left_out}"
            return Relation("copy", model, words)
        if parent.verdict == "part":
            return part_of(found)
    if has_structure and not found.steady:
        return f", {percent(found.equal)} of comparable lines unchanged" if found.equal else ""
    if not found.steady or found.equal >= ALL_LINES or _is_equal(found):
        words = f"{percent(parent.share_of_lines)} of lines are equal"
        return Relation("shares", model, f"shares weights with {found.model}: {words}")
    share = found.equal if has_structure else parent.share_of_lines
    words = f"{percent(share)} of {'the other lines' if is_partial else 'lines'} unchanged"
    where = None if has_structure else _where(found)
    if where:
        return Relation("changed", model, f"changed in {where} alone, {CHANGED}: {words}")
    return Relation("changed", model, f"changed, {CHANGED}: {words}, {_tensors(found)}")


def _is_equal(found: Differences) -> bool:
    """Whether all lines are equal of tensors that are found: others are not found."""
    return all(match.found >= ALL_LINES * match.comparable for match in found.steady)


def part_of(found: Differences) -> Relation:
    """Say which part of a model a checkpoint is."""
    theirs, used = found.comparison.theirs, used_of(found)
    is_whole = all(number in used for number, each in enumerate(theirs.tensors) if each.lines)
    where = "all of its lines are found there" if is_whole else tensors_in_words(theirs, used)
    sentence = f"part of {found.model}: {where}{_not_found(found)}{_left_out(found)}"
    return Relation("part", (found.comparison.model,), sentence)


def _not_found(found: Differences) -> str:
    """A part's own tensors, such as a small head, that are too few lines to make it another."""
    ours, common = found.comparison.ours, found.comparison.of_tensor
    own = [
        number
        for number, tensor in enumerate(ours.tensors)
        if tensor.lines and number not in found.comparison.sources and not common[number]
    ]
    return f"; unknown: {tensors_in_words(ours, own)}" if own else ""


def used_of(found: Differences) -> set[int]:
    """The model's tensors of which a good share of the lines is in the checkpoint."""
    theirs = found.comparison.theirs
    common = present(theirs.keys, found.comparison.keys)
    count = len(theirs.tensors)
    held = np.bincount(theirs.owners, minlength=count)
    shared = np.bincount(theirs.owners[common], minlength=count)
    return set(np.flatnonzero(shared > _USED * held).tolist())


def _left_out(found: Differences) -> str:
    """How many matrices have no lines to compare, though they are no short ones."""
    ours = found.comparison.ours.tensors
    count = sum(map(is_left_out, ours))
    return f"; {counted(count, 'tensor')} cannot be compared" if count else ""


def _tensors(found: Differences) -> str:
    compared = sum(1 for each in found.comparison.ours.tensors if each.lines)
    count = len(found.comparison.sources)
    tensors = counted(compared, "tensor")
    which = f"all {tensors}" if count == compared else f"{count:,} of {tensors}"
    if count == compared == 1:
        which = f"the only {tensors.removeprefix('1 ')}"
    where = f"at {'its' if compared == 1 else 'their'} place"
    return f"{which} {where if found.is_in_place else 'found'} in {found.model}"


def _where(found: Differences) -> str | None:
    changed = changed_alone(found)
    return tensors_in_words(found.comparison.ours, changed) if changed else None


def changed_alone(found: Differences) -> frozenset[int]:
    """The tensors that were changed, where all others have equal lines; none if it is not clear.

    A few lines of a tensor may be equal although all were changed. So tensors are taken together
    by kinds and by layers as well.
    """
    steady = {number for match in found.steady for number in match.group.numbers}
    if steady != set(found.numbers) or any(each.is_reordered for each in found.steady):
        return frozenset()
    changed = set(steady)
    while equal := _equal_cells(found, changed):
        changed -= equal
    held, of_tensor = found.comparison.held, found.comparison.of_tensor
    lucky = [n for n in changed if of_tensor[n] == held[n]]
    share = _most(found, changed - set(lucky))
    expected = sum(share ** int(held[number]) for number in changed)
    if changed == steady or len(lucky) > 2 * expected:
        return frozenset()
    return frozenset(changed)


def _equal_cells(found: Differences, numbers: Collection[int]) -> set[int]:
    """Those of some tensors that are no luck: alone, or with all of their kind or layer."""
    ours = found.comparison.ours.tensors
    held, of_tensor = found.comparison.held, found.comparison.of_tensor
    for cell_of in (_tensor, _kind, _layer):
        members = defaultdict[Hashable, list[int]](list)
        for number in sorted(numbers):
            members[cell_of(number, ours[number])].append(number)
        equal = [each for each in members.values() if of_tensor[each].sum() == held[each].sum()]
        inside = {number for each in equal for number in each}
        share = _most(found, set(numbers) - inside)
        rare = [each for each in equal if share ** int(held[each].sum()) < _RARE]
        if rare:
            return {number for each in rare for number in each}
    return set()


def _most(found: Differences, numbers: Collection[int]) -> float:
    """The largest share of equal lines that one of some tensors has, not quite 0 or 1."""
    held, of_tensor = found.comparison.held, found.comparison.of_tensor
    shares = ((int(of_tensor[n]) + 1) / (int(held[n]) + 2) for n in numbers)
    return max(shares, default=0.5)


def _tensor(number: int, _: LinesOfTensor) -> Hashable:
    return number


def _kind(_: int, tensor: LinesOfTensor) -> Hashable:
    position = position_of(tensor.name)
    return position.stack, position.kind


def _layer(number: int, tensor: LinesOfTensor) -> Hashable:
    return min(layers_of(tensor), default=("", number))
