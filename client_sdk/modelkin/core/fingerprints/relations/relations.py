"""What a checkpoint is to given models, in one plain sentence for each thing that was measured.

Two fingerprints tell what differs between two checkpoints, and not who made one of the other. So a
sentence compares the checkpoint with a model, and says nothing where the lines leave it open.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from modelkin.core.fingerprints.comparison import MODEL_LIMIT, Comparison, compare
from modelkin.core.fingerprints.relations.differences import Differences
from modelkin.core.fingerprints.relations.layer_maps import Layer, layers_of
from modelkin.core.fingerprints.relations.relation import Relation
from modelkin.core.fingerprints.relations.wording import (
    counted,
    listed,
    percent,
    plain,
    runs_in_words,
    tensors_in_words,
)
from modelkin.core.fingerprints.sources import Parent

__all__ = ["relations"]

_ALL: Final = 0.99
_FAR: Final = 0.25
"""A model with so much less of a tensor than another one is not where it comes from."""
_NOTHING: Final = "no model given is an ancestor, as far as lines show; absence proves nothing"


def relations(comparisons: Sequence[Comparison], parents: Sequence[Parent]) -> tuple[Relation, ...]:
    """Say what a checkpoint is to its parents.

    Args:
        comparisons: of the checkpoint and each of them.
        parents: in the order in which they are named, that of ``comparisons``.
    """
    if not parents:
        return (Relation("none", (), _NOTHING),)
    sources = _sources(comparisons)
    found = list[Relation]()
    if len(sources) > 1 and any(_is_whole(parents[number]) for number in sources):
        found += _assembled([Differences(comparisons[i], own) for i, own in sources.items()])
        named = set(sources)
    else:
        found += _of_first(comparisons[0], parents[0])
        named = {0}
    found += [_beside(each) for number, each in enumerate(parents) if number not in named]
    return tuple(found)


def _is_whole(parent: Parent) -> bool:
    """Whether a checkpoint has a good part of its tensors from a model."""
    return parent.verdict in ("copy", "part", "derived")


def _sources(comparisons: Sequence[Comparison]) -> dict[int, set[int]]:
    """The models that tensors come from, by their number, and these tensors.

    The nearest model has all that no other one has clearly more of.
    """
    first = comparisons[0]
    own = {0: {n for n, each in enumerate(first.ours.tensors) if each.lines}}
    for number, each in enumerate(comparisons[1:], 1):
        if not each.sources:
            continue
        rest = own[0].intersection(each.sources)
        kept = [n for n in rest if _is_from(each, first, n)]
        if kept and not _are_kin(each, first):
            taken = set(kept)
        else:
            taken = {n for n in kept if _share(each, n) >= _ALL}
        if taken:
            own[number] = taken
            own[0] -= taken
    return own


def _is_from(one: Comparison, other: Comparison, number: int) -> bool:
    """Whether one model has far more of a tensor than another one."""
    return _share(other, number) <= _FAR * _share(one, number)


def _share(comparison: Comparison, number: int) -> float:
    return float(comparison.of_tensor[number] / max(1, comparison.held[number]))


def _are_kin(one: Comparison, other: Comparison) -> bool:
    return compare(one.theirs, other.model, other.theirs).log10_p < MODEL_LIMIT


def _of_first(comparison: Comparison, parent: Parent) -> list[Relation]:
    """What a checkpoint is to the model that it has most from."""
    name = plain(parent.model)
    if parent.verdict == "reuses":
        words = listed([plain(tensor) for tensor in parent.tensors])
        return [Relation("reuses", (parent.model,), f"lines in common with {name}, in {words}")]
    if parent.verdict == "related":
        return [_related(parent)]
    compared = {n for n, each in enumerate(comparison.ours.tensors) if each.lines}
    differences = Differences(comparison, compared)
    found = differences.of_structure()
    residual = _residual(differences, parent, bool(found))
    if isinstance(residual, Relation):
        return [*found, residual]
    last = found.pop()
    return [*found, Relation(last.relation, last.models, last.sentence + residual)]


def _residual(differences: Differences, parent: Parent, has_structure: bool) -> Relation | str:
    """What is left beside the structure: a relation, or words behind the last sentence."""
    name, model = plain(parent.model), (parent.model,)
    changed, equal = differences.changed_kinds()
    if differences.equal >= _ALL:
        if has_structure:
            return differences.rest
        if parent.verdict == "copy":
            return Relation("copy", model, f"copy of {name}: all lines of both are equal")
        if parent.verdict == "part":
            return Relation("part", model, f"part of {name}: all of its lines are found there")
        return Relation("shares", model, _shares(parent))
    others = "of the other lines" if has_structure else "of lines"
    words = f"{percent(differences.equal)} {others} unchanged"
    if changed and equal and not has_structure:
        numbers = [n for match in changed for n in match.kind.numbers]
        where = tensors_in_words(differences.comparison.ours, numbers)
        return Relation("changed", model, f"fine-tuned or rounded in {where} alone: {words}")
    compared = sum(1 for each in differences.comparison.ours.tensors if each.lines)
    found = len(differences.comparison.sources)
    if found == compared:
        tensors = f"all {counted(compared, 'tensor')}"
    else:
        tensors = f"{found:,} of {counted(compared, 'tensor')}"
    where = "at their place" if differences.is_in_place else "found"
    return Relation(
        "changed", model, f"fine-tuned or rounded: {words}, {tensors} {where} in {name}"
    )


def _related(parent: Parent) -> Relation:
    words = (
        f"related to {plain(parent.model)}: {counted(parent.keys, 'line')} in common where chance "
        f"leaves {parent.expected:.1f} at most, and no tensor has enough"
    )
    return Relation("related", (parent.model,), words)


def _shares(parent: Parent) -> str:
    return (
        f"shares weights with {plain(parent.model)}: {percent(parent.share_of_lines)} of lines are "
        "equal"
    )


def _beside(parent: Parent) -> Relation:
    """What a checkpoint is to a model, beside another that it has more from."""
    name = plain(parent.model)
    if parent.verdict == "copy":
        return Relation("copy", (parent.model,), f"all lines of {name} as well")
    if parent.verdict == "related":
        return _related(parent)
    more = "none" if parent.added <= 0 else percent(parent.added)
    return Relation(
        "shares",
        (parent.model,),
        f"shares weights with {name} as well: {percent(parent.share_of_lines)} of lines are equal, "
        f"{more} of them nowhere before",
    )


def _assembled(parts: Sequence[Differences]) -> list[Relation]:
    """Several models that tensors come from."""
    ours = parts[0].comparison.ours
    models = tuple(part.comparison.model for part in parts)
    sentence = _in_order(parts) or "; ".join(
        f"{tensors_in_words(ours, _found(part))} from {part.model}" for part in parts
    )
    found = [Relation("assembled", models, f"assembled: {sentence}")]
    matched = [match for part in parts for match in part.matches if match.change != "other"]
    comparable = sum(match.comparable for match in matched)
    equal = sum(match.found for match in matched) / comparable if comparable else 0.0
    if equal < _ALL:
        words = f"fine-tuned or rounded: {percent(equal)} of lines unchanged"
        found.append(Relation("changed", models, words))
    return found


def _found(part: Differences) -> list[int]:
    return [number for number in part.numbers if number in part.comparison.sources]


def _in_order(parts: Sequence[Differences]) -> str | None:
    """The layers by their order, where each comes from one model and another place."""
    origins = dict[Layer, tuple[int, Layer]]()
    for number, part in enumerate(parts):
        for layer, origin in part.layers.origins.items():
            if layer in origins:
                return None
            origins[layer] = (number, origin)
    if all(layer[1] == origin[1] for layer, (_, origin) in origins.items()):
        return None
    words, run = list[str](), list[Layer]()
    before = None
    for number, origin in (origins[layer] for layer in sorted(origins)):
        if before is not None and (
            number != before or origin != parts[number].layers.behind(run[-1])
        ):
            words.append(f"{runs_in_words([run])} of {parts[before].model}")
            run = []
        run.append(origin)
        before = number
    assert before is not None
    words.append(f"{runs_in_words([run])} of {parts[before].model}")
    others = [
        f"{tensors_in_words(part.comparison.ours, rest)} from {part.model}"
        for part in parts
        if (rest := [n for n in _found(part) if not layers_of(part.comparison.ours.tensors[n])])
    ]
    return "; ".join([f"layers {listed(words)}, in this order", *others])
