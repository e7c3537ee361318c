"""How a checkpoint differs from one model that it has most of its lines from."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Final

from modelkin.core.fingerprints.comparison import Comparison
from modelkin.core.fingerprints.places import ranges
from modelkin.core.fingerprints.relations.groups import Group, Match, groups_of, matches
from modelkin.core.fingerprints.relations.layer_maps import Layer, LayerMap, layer_map, layers_of
from modelkin.core.fingerprints.relations.positions import position_of
from modelkin.core.fingerprints.relations.relation import Relation, RelationName
from modelkin.core.fingerprints.relations.wording import (
    listed,
    plain,
    runs_in_words,
    tensors_in_words,
)
from modelkin.core.fingerprints.tensors import LinesOfTensor
from modelkin.core.matching.names import canonical_name

__all__ = ["Differences"]

_ALL: Final = 0.99
_OPEN: Final = ("turned", "other")
_MOVING: Final = ("fused", "split", "resized", "repeated")
_RARE: Final = 1e-6
_MISSED: Final = 12.0
"""Lines that would be found in a tensor if it were the model's; then it is not, where none is."""
_WORDS: Final = re.compile(
    r"(?i)(?:^|[._/])(?:embed\w*|wte|shared|tok\w*|\w*word_embeddings?|lm_head|vocab\w*)(?:$|[._/])"
)
"""Names of tables with a row for each token."""
_HEAD: Final = re.compile(
    r"(?i)(?:^|[._/])(?:\w*head|\w*classifier|score|output|logits|predictions|qa_outputs|fc)"
    r"(?:$|[._/])"
)
"""Names of what makes a network's answers."""


@dataclass(frozen=True, eq=False)
class Differences:
    """What differs between a checkpoint and a model.

    Attributes:
        comparison: of the two.
        numbers: the checkpoint's tensors that may come from this model.
    """

    comparison: Comparison
    numbers: Collection[int]

    @cached_property
    def layers(self) -> LayerMap:
        """Where its layers come from."""
        return layer_map(self.comparison, self.numbers)

    @cached_property
    def kinds(self) -> tuple[Group, ...]:
        """The kinds of its tensors."""
        return groups_of(self.comparison.ours, self.numbers)

    @cached_property
    def matches(self) -> tuple[Match, ...]:
        """What became of the kinds that have an origin."""
        found = matches(self.comparison, self.kinds, self.layers)
        return tuple(match for match in found if match is not None)

    @cached_property
    def equal(self) -> float:
        """The share of equal lines, of those that no change of shape has broken up.

        Other rows of a tensor move the scales of its places, and a few lines with them: where there
        are other tensors, these alone count.
        """
        known = [match for match in self.matches if match.change not in _OPEN]
        known = [match for match in known if match.change not in _MOVING] or known
        comparable = sum(match.comparable for match in known)
        return sum(match.found for match in known) / comparable if comparable else 0.0

    @property
    def model(self) -> str:
        """The model's name, for sentences."""
        return plain(self.comparison.model)

    def relation(self, name: RelationName, sentence: str) -> Relation:
        """A relation to the model."""
        return Relation(name, (self.comparison.model,), sentence)

    def of_structure(self) -> list[Relation]:
        """Layers, vocabulary, experts, widths, heads and layout."""
        found = [self._of_layers(), self._of_vocabulary(), self._of_experts(), self._of_widths()]
        found += [self._of_head(), self._of_added(), self._of_layout()]
        return [each for each in found if each is not None]

    def changed_kinds(self) -> tuple[list[Match], list[Match]]:
        """The kinds that differ, and those whose lines are all equal; none where it is not clear.

        A few lines of a kind may be equal although all tensors were changed.
        """
        known = [match for match in self.matches if match.change not in (*_OPEN, *_MOVING)]
        equal = [match for match in known if match.found >= _ALL * match.comparable]
        changed = [match for match in known if match not in equal]
        rest = sum(match.found for match in changed)
        share = (rest + 1) / (sum(match.comparable for match in changed) + 1)
        if len(known) < len(self.kinds) or any(share**each.comparable > _RARE for each in equal):
            return known, []
        return changed, equal

    def _of_layers(self) -> Relation | None:
        found = self.layers
        if not found.origins or (found.is_identity and len(found.layers) == len(found.of)):
            return None
        unknown = [layer for layer in found.layers if layer not in found.origins]
        order = [found.origins[layer] for layer in found.layers if layer in found.origins]
        stacks = {stack for stack, _ in order}
        if unknown and not all(self._is_missing(layer) for layer in unknown):
            return None
        runs = list[list[Layer]]()
        for layer in order:
            if runs and layer == found.behind(runs[-1][-1]):
                runs[-1].append(layer)
            else:
                runs.append([layer])
        several = len({stack for stack, _ in found.of}) > 1
        added = f"; layers {ranges(n for _, n in unknown)} are not found there" if unknown else ""
        if len(set(order)) < len(order):
            joined = runs_in_words(runs, several)
            return self.relation(
                "depth_up_scaled",
                f"depth up-scaled: layers {joined} of {self.model}, in this order{added}",
            )
        held = set(order).union(*found.copies.values())
        dropped = [each for each in found.of if each not in held and each[0] in stacks]
        if any(found.of.index(a) > found.of.index(b) for a, b in pairwise(order)):
            return self.relation(
                "layers_moved",
                f"layers of {self.model} in another order: {runs_in_words(runs, several)}{added}",
            )
        if dropped:
            words = [runs_in_words([[each]], several) for each in dropped]
            numbers = listed(words) if several else ranges(n for _, n in dropped)
            noun = "layer" if len(dropped) == 1 else "layers"
            return self.relation(
                "layers_dropped", f"{noun} {numbers} of {self.model} dropped{added}"
            )
        if unknown:
            numbers = ranges(n for _, n in unknown)
            noun, verb = ("layer", "is") if len(unknown) == 1 else ("layers", "are")
            return self.relation("added", f"{noun} {numbers} {verb} not found in {self.model}")
        return None

    def _is_missing(self, layer: Layer) -> bool:
        """Whether a layer would have been found if the model had it."""
        members = [
            number
            for number in self.numbers
            if layer in layers_of(self.comparison.ours.tensors[number])
        ]
        return all(number not in self.comparison.sources for number in members) and (
            sum(int(self.comparison.held[number]) for number in members) * self.equal >= _MISSED
        )

    def _resized(self) -> list[Match]:
        return [each for each in self.matches if each.change == "resized"]

    def _of_vocabulary(self) -> Relation | None:
        changes = {
            each.resized
            for each in self._resized()
            if not each.kind.stack and self._is_vocabulary(each)
        }
        if len(changes) != 1:
            return None
        [(before, after)] = [each for each in changes if each]
        if after > before:
            words = f"grown by {after - before:,} {'row' if after - before == 1 else 'rows'}"
        else:
            words = f"cut to {after:,} rows"
        return self.relation("vocabulary_resized", f"vocabulary {words}")

    def _is_vocabulary(self, match: Match) -> bool:
        widths = {each.resized for each in self._resized() if each.kind.stack}
        names = self.comparison.ours.tensors[match.kind.numbers[0]].names
        return match.resized not in widths and any(_WORDS.search(name) for name in names)

    def _of_experts(self) -> Relation | None:
        grown = [match for match in self.matches if match.change == "grown"]
        if not grown:
            return None
        ours = self.comparison.ours
        experts = {
            place.expert
            for match in grown
            for number in match.kind.numbers
            for name in ours.tensors[number].names
            if (place := position_of(name)).expert is not None
        }
        origins = dict.fromkeys(plain(origin.name) for match in grown for origin in match.origins)
        which = f"experts {ranges(e for e in experts if e is not None)}" if experts else "experts"
        count = {match.kind.matrices for match in grown if match.kind.matrices > 1}
        if not experts and len(count) == 1 and self._is_equal(grown):
            which = f"all {count.pop()} experts"
        layers = {
            layer for m in grown for n in m.kind.numbers for layer in layers_of(ours.tensors[n])
        }
        where = (
            "every layer"
            if layers >= set(self.layers.layers)
            else (f"layers {ranges(number for _, number in layers)}")
        )
        return self.relation(
            "upcycled", f"{which} of {where} grew from {listed([*origins])} of {self.model}"
        )

    @staticmethod
    def _is_equal(found: Sequence[Match]) -> bool:
        return all(each.found >= _ALL * each.comparable for each in found)

    def _of_widths(self) -> Relation | None:
        found = [
            each for each in self._resized() if each.kind.stack or not self._is_vocabulary(each)
        ]
        if not found:
            return None
        words = dict[tuple[int, int], list[str]]()
        for match in found:
            assert match.resized is not None
            words.setdefault(match.resized, []).append(self._label(match.kind))
        said = "; ".join(
            f"{listed(list(dict.fromkeys(labels)))} from {before:,} to {after:,}"
            for (before, after), labels in words.items()
        )
        if all(after < before for before, after in words):
            return self.relation("pruned", f"narrower than {self.model}: {said}")
        if all(after > before for before, after in words):
            return self.relation("widened", f"wider than {self.model}: {said}")
        return self.relation("widened", f"of other widths than {self.model}: {said}")

    def _of_head(self) -> Relation | None:
        ours, theirs = self.comparison.ours, self.comparison.theirs
        known = {
            (canonical_name(name), each.shape) for each in theirs.tensors for name in each.names
        }
        heads = [
            number
            for number, each in enumerate(ours.tensors)
            if len(each.shape) > 1 and self._is_head(each) and self._is_new(number, each, known)
        ]
        if not heads:
            return None
        words = listed([plain(ours.tensors[number].name) for number in heads])
        return self.relation("head_changed", f"head changed: {words} is not {self.model}'s")

    @staticmethod
    def _is_head(tensor: LinesOfTensor) -> bool:
        return any(_HEAD.search(name) and position_of(name).layer is None for name in tensor.names)

    def _is_new(
        self, number: int, tensor: LinesOfTensor, known: Collection[tuple[str, tuple[int, ...]]]
    ) -> bool:
        """Whether the model has no such tensor, by its lines, or by name and shape."""
        if tensor.lines:
            return number in self.numbers and self._is_unfound(number)
        return all((canonical_name(name), tensor.shape) not in known for name in tensor.names)

    def _is_unfound(self, number: int) -> bool:
        if number in self.comparison.sources:
            return False
        lengths = self.comparison.theirs.lines
        tensor = self.comparison.ours.tensors[number]
        inside = sum(count for length, count in tensor.lines.items() if length in lengths)
        held = int(self.comparison.held[number]) * inside / max(1, sum(tensor.lines.values()))
        return held * self.equal >= _MISSED and int(self.comparison.of_tensor[number]) <= max(
            2, 0.02 * held
        )

    def _of_added(self) -> Relation | None:
        matched = {number for match in self.matches for number in match.kind.numbers}
        missing = {layer for layer in self.layers.layers if layer not in self.layers.origins}
        ours = self.comparison.ours
        added = [
            number
            for number in self.numbers
            if number not in matched
            and not layers_of(ours.tensors[number]) & missing
            and not self._is_head(ours.tensors[number])
            and self._is_unfound(number)
        ]
        if not added:
            return None
        return self.relation("added", f"not found in {self.model}: {tensors_in_words(ours, added)}")

    def _of_layout(self) -> Relation | None:
        by_change = {
            "fused": "fused",
            "split": "split",
            "transposed": "transposed",
            "reshaped": "reshaped",
            "repeated": "rows repeated in",
        }
        parts = [
            f"{word} {listed(labels)}"
            for change, word in by_change.items()
            if (
                labels := list(
                    dict.fromkeys(
                        self._label(match.kind) for match in self.matches if match.change == change
                    )
                )
            )
        ]
        moved = [self._label(match.kind) for match in self.matches if match.is_reordered]
        if moved:
            parts.append(f"another order in {listed(list(dict.fromkeys(moved)))}")
        if any(self._is_renamed(match) for match in self.matches):
            parts.append("renamed")
        if not parts:
            return None
        return self.relation("layout", f"another layout than {self.model}'s: {'; '.join(parts)}")

    @property
    def rest(self) -> str:
        """What the sentences about structure leave, where all of its lines are the model's."""
        if any(match.change in _OPEN for match in self.matches):
            return ""
        is_rest = any(
            match.change == "none" and not match.is_reordered and not self._is_renamed(match)
            for match in self.matches
        )
        return f", all else of {self.model}" if is_rest else f", all of {self.model}"

    @property
    def is_in_place(self) -> bool:
        """Whether each kind that is found is another's alone, in the same layers."""
        origins = [origin for match in self.matches for origin in match.origins]
        return len(set(origins)) == len(origins) == len(self.matches) and self.layers.is_identity

    def _is_renamed(self, match: Match) -> bool:
        """Whether tensors that are as they were have other names."""
        is_same = match.change in ("none", "transposed", "reshaped", "resized")
        names = self._names(match.kind, True)
        return is_same and names.isdisjoint(self._names(match.origins[0], False))

    def _names(self, kind: Group, is_ours: bool) -> set[str]:
        """The names of a kind, without the numbers of layers."""
        of = self.comparison.ours if is_ours else self.comparison.theirs
        names = [name for number in kind.numbers for name in of.tensors[number].names]
        return {_without_layer(name) for name in names}

    def _label(self, kind: Group) -> str:
        if not kind.stack:
            return plain(kind.name)
        several = len({each.stack for each in self.kinds if each.stack}) > 1
        return plain(f"{kind.stack}.N.{kind.name}" if several else kind.name)


def _without_layer(name: str) -> str:
    place = position_of(name)
    stack = f"{place.stack}.0." if place.stack else ""
    return canonical_name(f"{stack}{place.kind}.weight")
