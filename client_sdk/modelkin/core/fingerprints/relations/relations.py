"""What a checkpoint is to given models, in one plain sentence for each thing that was measured.

Two fingerprints tell what differs between two checkpoints, and not who made one of the other. So a
sentence compares the checkpoint with a model, and says nothing where the lines leave it open.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from modelkin.core.fingerprints.comparison import Comparison
from modelkin.core.fingerprints.fingerprint import Fingerprint
from modelkin.core.fingerprints.lines import present
from modelkin.core.fingerprints.merges import Merge, Merges
from modelkin.core.fingerprints.relations.assembly import assembled, sources_of
from modelkin.core.fingerprints.relations.changes import part_of, rest_of, used_of
from modelkin.core.fingerprints.relations.differences import Differences
from modelkin.core.fingerprints.relations.layer_maps import layers_of
from modelkin.core.fingerprints.relations.relation import Relation, RelationName
from modelkin.core.fingerprints.relations.structure import relations_of_structure
from modelkin.core.fingerprints.relations.wording import (
    counted,
    listed,
    percent,
    plain,
    tensors_in_words,
)
from modelkin.core.fingerprints.sources import WHOLE, Parent

__all__ = ["Among", "relation_by_figures", "relations"]

Among = Literal["given", "stored", "catalogue"]
"""The models that were asked: those that somebody gave, all that are stored, or a catalogue's."""

_NOTHING: Final = "is an ancestor, as far as lines show; absence proves nothing"
_EMPTY: Final[Mapping[Among, str]] = {
    "given": "no model was given",
    "stored": "no other model is stored",
    "catalogue": "the catalogue has no base",
}
_NO_LINES: Final = "it has no lines to compare: its matrices are short, tables, or of few values"
_FEW: Final = 0.125
"""The share of a checkpoint's tensors up to which those that are found are named, and no more is
said: a vocabulary that both have from elsewhere makes no model another one's."""
_NAMED: Final = 3
"""Tensors that are named each, whatever their layers."""
_MOST_MERGED: Final = 8
"""The models among which the two of an average are looked for."""
_ALIKE: Final = 0.9
"""The share of lines from which on two models are one for this: no average between them is told."""


def relations(
    checkpoint: Fingerprint,
    comparisons: Sequence[Comparison],
    parents: Sequence[Parent],
    models: int,
    *,
    among: Among = "given",
    made_from_it: Collection[str] = (),
) -> tuple[Relation, ...]:
    """Say what a checkpoint is to its parents.

    Args:
        checkpoint: its fingerprint, at its own scale.
        comparisons: of it and each of them.
        parents: in the order in which they are named, that of ``comparisons``.
        models: how many were asked.
        among: what was asked: models that somebody gave, or all that are stored or that a
            catalogue has, among which the parents were found by their keys.
        made_from_it: the parents that are declared to be made from the checkpoint, and so are
            neither sources of its tensors nor two of which it is an average.
    """
    if not checkpoint.lines:
        return (Relation("none", (), _NO_LINES),)
    if not parents:
        return (Relation("none", (), _nothing(models, among)),)
    # No tensor comes from a copy behind the nearest model, which has all from the same places too,
    # and none from a model that was made from this one.
    apart = [
        at
        for at, each in enumerate(parents)
        if not at or (each.verdict != "copy" and each.model not in made_from_it)
    ]
    found_in = sources_of([comparisons[at] for at in apart])
    sources = {apart[at]: own for at, own in found_in.items()}
    is_whole = any(parents[at].verdict in WHOLE for at in sources)
    if len(sources) > 1 and is_whole:
        named = set(sources)
        found = assembled([Differences(comparisons[at], own) for at, own in sources.items()])
    else:
        average = _average_of(checkpoint, comparisons, parents, made_from_it)
        named = {0, *(average[0] if average else ())}
        found = _of_first(comparisons[0], parents[0], average is not None)
        if average:
            found.insert(0, _average(parents, *average))
    others = [each for at, each in enumerate(parents) if at not in named]
    return (*found, *_beside(others))


def _nothing(models: int, among: Among) -> str:
    if not models:
        return _EMPTY[among]
    asked = {
        "given": "no model given",
        "stored": f"none of {counted(models, 'model')}",
        "catalogue": f"none of {counted(models, 'base')} of the catalogue",
    }
    return f"{asked[among]} {_NOTHING}"


def _average_of(
    checkpoint: Fingerprint,
    comparisons: Sequence[Comparison],
    parents: Sequence[Parent],
    made_from_it: Collection[str],
) -> tuple[tuple[int, int], Merge] | None:
    """The two models of which a checkpoint is an average, and how."""
    near = [
        at
        for at, each in enumerate(parents)
        if each.verdict == "derived" and each.model not in made_from_it
    ]
    near = _unlike(comparisons, sorted(near, key=lambda at: -parents[at].share_of_lines))
    found = list[tuple[float, tuple[int, int], Merge]]()
    merges = Merges(checkpoint, [comparisons[at].theirs for at in near])
    for first, second in combinations(range(len(near)), 2):
        merge = merges.of(first, second)
        if merge and merge.is_average:
            found.append((merge.stretch, (near[first], near[second]), merge))
    if not found:
        return None
    _, pair, merge = min(found, key=lambda each: each[:2])
    if merge.share >= 0.5:
        return pair, merge
    return (pair[1], pair[0]), replace(merge, share=1 - merge.share)


def _unlike(comparisons: Sequence[Comparison], near: Sequence[int]) -> list[int]:
    """The first models that are unlike each other: of many models a hub has copies."""
    kept = list[int]()
    for at in near:
        if len(kept) == _MOST_MERGED:
            break
        theirs = comparisons[at].theirs.distinct
        if not any(_alike(theirs, comparisons[other].theirs.distinct) for other in kept):
            kept.append(at)
    return kept


def _alike(one: npt.NDArray[np.uint64], other: npt.NDArray[np.uint64]) -> bool:
    common = int(present(one, other).sum())
    return common >= _ALIKE * max(one.size, other.size)


def _average(parents: Sequence[Parent], pair: tuple[int, int], merge: Merge) -> Relation:
    models = tuple(parents[at].model for at in pair)
    first = round(100 * merge.share)
    sentence = (
        f"average of {plain(models[0])} ({first}%) and {plain(models[1])} ({100 - first}%), or of "
        "models close to these"
    )
    return Relation("average", models, sentence)


def _of_first(comparison: Comparison, parent: Parent, is_average: bool) -> list[Relation]:
    """What a checkpoint is to the model that it has most from."""
    tensors = comparison.ours.tensors
    if parent.verdict == "reuses":
        used = [number for number, each in enumerate(tensors) if each.name in parent.tensors]
        return [_in_few(comparison, parent, "reuses", used)]
    if parent.verdict == "related":
        return [_related(parent)]
    compared = {number for number, each in enumerate(tensors) if each.lines}
    if len(comparison.sources) <= _FEW * len(compared):
        return [_in_few(comparison, parent, "shares", comparison.sources)]
    differences = Differences(comparison, compared)
    found = relations_of_structure(differences)
    if is_average:
        return found
    if [each.relation for each in found] == ["layers_dropped"] and _is_cut(differences, parent):
        return [part_of(differences)]
    rest = rest_of(differences, parent, {each.relation for each in found})
    if isinstance(rest, Relation):
        return [*found, rest]
    return [*found[:-1], replace(found[-1], sentence=found[-1].sentence + rest)]


def _in_few(
    comparison: Comparison, parent: Parent, name: RelationName, numbers: Collection[int]
) -> Relation:
    tensors = comparison.ours.tensors
    if len(numbers) > _NAMED:
        words = tensors_in_words(comparison.ours, numbers)
    else:
        words = listed([plain(tensors[number].name) for number in sorted(numbers)])
    sentence = f"lines in common with {plain(parent.model)}, in {words}"
    return Relation(name, (parent.model,), sentence)


def _is_cut(found: Differences, parent: Parent) -> bool:
    """Whether a part has other tensors less than the layers that are dropped."""
    used = used_of(found)
    return parent.verdict == "part" and any(
        each.lines and not layers_of(each) and number not in used
        for number, each in enumerate(found.comparison.theirs.tensors)
    )


def _related(parent: Parent) -> Relation:
    words = (
        f"related to {plain(parent.model)}: {counted(parent.keys, 'line')} in common where chance "
        f"leaves {parent.expected:.1f} at most, and no tensor has enough"
    )
    return Relation("related", (parent.model,), words)


def relation_by_figures(parent: Parent) -> Relation:
    """What a checkpoint is to one model, without what became of its layers and tensors."""
    name, model = plain(parent.model), (parent.model,)
    if parent.verdict == "copy":
        return Relation("copy", model, f"all lines of {name}, and no others")
    if parent.verdict == "part":
        return Relation("part", model, f"all of its lines are found in {name}")
    if parent.verdict == "related":
        return _related(parent)
    words = f"shares weights with {name}: {percent(parent.share_of_lines)} of lines are equal"
    return Relation("reuses" if parent.verdict == "reuses" else "shares", model, words)


def _beside(parents: Sequence[Parent]) -> list[Relation]:
    """What a checkpoint is to models, beside another that it has more from."""
    found, kin = list[Relation](), list[Parent]()
    for parent in parents:
        name, model = plain(parent.model), (parent.model,)
        if parent.verdict == "copy":
            found.append(Relation("copy", model, f"all lines of {name} as well, and no others"))
        elif parent.verdict == "part":
            words = f"all of its lines are found in {name} as well"
            found.append(Relation("part", model, words))
        elif parent.verdict == "related":
            found.append(_related(parent))
        else:
            kin.append(parent)
    kin.sort(key=lambda parent: -parent.share_of_lines)
    if kin:
        words = listed([f"{plain(each.model)} ({percent(each.share_of_lines)})" for each in kin])
        sentence = f"shares weights as well, by lines that are equal, with {words}"
        found.append(Relation("shares", tuple(each.model for each in kin), sentence))
    return found
