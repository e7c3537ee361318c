"""What differs in structure: layers, vocabulary, experts, widths, heads and layout."""

from __future__ import annotations

import re
from collections.abc import Collection
from fractions import Fraction
from typing import Final

from modelkin.core.fingerprints.comparison import ALL_LINES
from modelkin.core.fingerprints.labels import ranges
from modelkin.core.fingerprints.relations.differences import Differences, is_head
from modelkin.core.fingerprints.relations.layer_maps import layers_of
from modelkin.core.fingerprints.relations.layer_relations import relations_of_layers
from modelkin.core.fingerprints.relations.matches import Match
from modelkin.core.fingerprints.relations.positions import position_of
from modelkin.core.fingerprints.relations.relation import Relation, RelationName
from modelkin.core.fingerprints.relations.wording import listed, plain, tensors_in_words
from modelkin.core.fingerprints.tensors import LinesOfTensor, NotComparable
from modelkin.core.matching.names import canonical_name

__all__ = ["relations_of_structure"]

_WORDS: Final = re.compile(
    r"(?i)(?:^|[._/])(?:emb\w*|\w+_emb\w*|wte|shared|tok\w*|words?|word_table|lm_head|vocab\w*)"
    r"(?:$|[._/])"
)
"""Names of tables with a row for each token."""
_OTHER_TABLES: Final = re.compile(r"(?i)pos|patch|type|time")
"""Names of tables with a row for something else."""
_LAYOUT: Final = {
    "fused": "fused",
    "split": "split",
    "transposed": "transposed",
    "reshaped": "reshaped",
    "repeated": "rows repeated in",
}


def relations_of_structure(found: Differences) -> list[Relation]:
    """Say what differs in layers, vocabulary, experts, widths, heads and layout."""
    rows = {match.resized for match in found.matches if _is_vocabulary(found, match)}
    vocabulary = [match for match in found.matches if match.resized in rows and len(rows) == 1]
    relations = (
        *relations_of_layers(found),
        _of_vocabulary(found, vocabulary),
        _of_experts(found),
        _of_widths(found, vocabulary),
        head := _of_head(found),
        _of_added(found, head is not None),
        _of_layout(found),
    )
    return [each for each in relations if each is not None]


def _relation(found: Differences, name: RelationName, sentence: str) -> Relation:
    return Relation(name, (found.comparison.model,), sentence)


def _is_vocabulary(found: Differences, match: Match) -> bool:
    """Whether a table of words has other rows than before."""
    if match.resized is None or match.change != "resized" or match.group.stack:
        return False
    widths = {each.resized for each in found.matches if each.group.stack}
    names = found.comparison.ours.tensors[match.group.numbers[0]].names
    return match.resized not in widths and any(
        _WORDS.search(name) and not _OTHER_TABLES.search(name) for name in names
    )


def _of_vocabulary(found: Differences, matches: Collection[Match]) -> Relation | None:
    changes = {match.resized for match in matches if match.resized}
    if not changes:
        return None
    [(before, after)] = changes
    if after > before:
        words = f"grown by {after - before:,} {'row' if after - before == 1 else 'rows'}"
    else:
        words = f"cut to {after:,} rows"
    return _relation(found, "vocabulary_resized", f"vocabulary {words}")


def _of_experts(found: Differences) -> Relation | None:
    grown = [match for match in found.matches if match.change == "grown"]
    if not grown:
        return None
    ours = found.comparison.ours
    numbers = [number for match in grown for number in match.group.numbers]
    from_it = [number for number in numbers if number in found.comparison.sources]
    names = [name for number in from_it for name in ours.tensors[number].names]
    experts = {each.expert for each in map(position_of, names) if each.expert is not None}
    stacked = {match.group.matrices for match in grown}
    if experts:
        which = f"{'expert' if len(experts) == 1 else 'experts'} {ranges(experts)}"
    elif len(stacked) == 1 and all(each.found >= ALL_LINES * each.comparable for each in grown):
        which = f"all {stacked.pop()} experts"
    else:
        which = "experts"
    layers = {layer for number in numbers for layer in layers_of(ours.tensors[number])}
    is_every = layers >= set(found.layers.layers)
    where = "every layer" if is_every else f"layers {ranges(number for _, number in layers)}"
    origins = dict.fromkeys(plain(each.name) for match in grown for each in match.origins)
    sentence = f"{which} of {where} grew from {listed([*origins])} of {found.model}"
    return _relation(found, "upcycled", sentence)


def _of_widths(found: Differences, vocabulary: Collection[Match]) -> Relation | None:
    words = dict[tuple[int, int], list[str]]()
    for match in found.matches:
        if match.change == "resized" and match.resized and match not in vocabulary:
            words.setdefault(match.resized, []).append(found.label(match.group))
    if not words:
        return None
    said = "; ".join(
        f"{listed(list(dict.fromkeys(labels)))} from {before:,} to {after:,}"
        for (before, after), labels in words.items()
    )
    if all(after < before for before, after in words):
        return _relation(found, "pruned", f"narrower than {found.model}: {said}")
    if all(after > before for before, after in words):
        return _relation(found, "widened", f"wider than {found.model}: {said}")
    return _relation(found, "widened", f"of other widths than {found.model}: {said}")


def _of_head(found: Differences) -> Relation | None:
    theirs = found.comparison.theirs.tensors
    known = {(canonical_name(name), each.shape) for each in theirs for name in each.names}
    answers = {min(each.shape) for each in theirs if len(each.shape) > 1 and is_head(each)}
    cuts = {Fraction(*match.resized) for match in found.matches if match.resized}
    parts = {count / cut for count in answers for cut in cuts}
    answers |= {int(part) for part in parts if part.denominator == 1}
    added = {number for group in found.added for number in group.numbers}
    kept = (number for match in found.matches for number in match.group.numbers)
    ours = found.comparison.ours.tensors
    if not any(map(is_head, theirs)) or any(is_head(ours[number]) for number in kept):
        return None
    heads = [
        plain(tensor.name)
        for number, tensor in enumerate(ours)
        if len(tensor.shape) > 1 and is_head(tensor)
        if (number in added if tensor.lines else _is_unknown(tensor, known, answers))
    ]
    if not heads:
        return None
    sentence = f"head changed: {listed(heads)} is not {found.model}'s"
    return _relation(found, "head_changed", sentence)


def _is_unknown(
    tensor: LinesOfTensor, known: Collection[tuple[str, tuple[int, ...]]], answers: Collection[int]
) -> bool:
    """Whether a tensor is too short to have lines, and no head of a model may be the same.

    One of as many answers may be renamed, transposed, or cut with what it reads; in one of several
    equal parts of a model, so are the answers. Nothing is said of others without lines: a part of a
    table may be smooth that as a whole is not.
    """
    is_named = any((canonical_name(name), tensor.shape) in known for name in tensor.names)
    is_short = tensor.reason is NotComparable.SHORT
    return is_short and not is_named and min(tensor.shape) not in answers


def _of_added(found: Differences, has_head: bool) -> Relation | None:
    ours = found.comparison.ours
    added = [number for group in found.added for number in group.numbers]
    if has_head:
        added = [number for number in added if not is_head(ours.tensors[number])]
    if not added:
        return None
    sentence = f"not found in {found.model}: {tensors_in_words(ours, added)}"
    return _relation(found, "added", sentence)


def _of_layout(found: Differences) -> Relation | None:
    labels = dict[str, dict[str, None]]()
    for match in found.matches:
        words = [_LAYOUT.get(match.change), "another order in" if match.is_reordered else None]
        for word in filter(None, words):
            labels.setdefault(word, {})[found.label(match.group)] = None
    parts = [f"{word} {listed([*each])}" for word, each in labels.items()]
    if any(found.is_renamed(match) for match in found.matches):
        parts.append("renamed")
    if not parts:
        return None
    sentence = f"another layout than {found.model}'s: {'; '.join(parts)}"
    return _relation(found, "layout", sentence)
