"""What of a checkpoint is found in one model, and what became of it."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from modelkin.core.fingerprints.comparison import Comparison
from modelkin.core.fingerprints.relations.groups import Group, groups_of
from modelkin.core.fingerprints.relations.layer_maps import (
    Layer,
    LayerMap,
    layer_map,
    layers_of,
)
from modelkin.core.fingerprints.relations.matches import Match, matches
from modelkin.core.fingerprints.relations.positions import position_of
from modelkin.core.fingerprints.relations.wording import plain
from modelkin.core.fingerprints.tensors import LinesOfTensor, NotComparable
from modelkin.core.matching.names import canonical_name

__all__ = ["Differences", "is_head", "is_left_out"]

_HEAD: Final = re.compile(
    r"(?i)(?:^|[._/])(?:\w*head|\w*classifier|score|output|output_projection|logits|predict|predictions|qa_outputs"
    r"|classify|fc)"
    r"(?:$|[._/])"
)
_MISSED: Final = 20.0
"""Lines that would be found on average if they were the model's: where none is, they are not."""
_LONG_TRAINED: Final = 0.3
"""The share of lines below which nothing is said to be missing: some tensors change far more than
others when they are trained for long, or of most weights none is left."""
_LEFT: Final = 0.8
"""The share from which on that is said also where fewer tensors are found than are not."""
_BY_CHANCE: Final = 0.02
"""The share of lines that may meet others of the model all the same."""


def is_head(tensor: LinesOfTensor) -> bool:
    """Whether a tensor makes a network's answers, by its names."""
    return any(_HEAD.search(name) and position_of(name).layer is None for name in tensor.names)


def is_left_out(tensor: LinesOfTensor) -> bool:
    """Whether a tensor has no lines to compare, though it is no vector and not short."""
    return tensor.reason not in (None, NotComparable.SHORT)


@dataclass(frozen=True, eq=False)
class Differences:
    """What differs between a checkpoint and a model.

    Attributes:
        comparison: of the two.
        numbers: the checkpoint's tensors that may come from this model.
    """

    comparison: Comparison
    numbers: Collection[int]

    @property
    def model(self) -> str:
        """The model's name, for sentences."""
        return plain(self.comparison.model)

    @cached_property
    def layers(self) -> LayerMap:
        """Where its layers come from."""
        return layer_map(self.comparison, self.numbers)

    @cached_property
    def missing_layers(self) -> frozenset[Layer]:
        """Layers that would have been found if the model had them."""
        unknown = [layer for layer in self.layers.layers if layer not in self.layers.origins]
        return frozenset(layer for layer in unknown if self._is_missing(self._members(layer)))

    @cached_property
    def missing(self) -> frozenset[int]:
        """The tensors of these layers."""
        return frozenset(n for n in self.numbers if self._layers(n) & self.missing_layers)

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """The groups of its other tensors."""
        present = set(self.numbers) - self.missing
        return groups_of(self.comparison.ours, present, self._have_layers)

    @cached_property
    def groups_of_model(self) -> tuple[Group, ...]:
        """The groups of the model's tensors."""
        return groups_of(self.comparison.theirs, None, self._have_layers)

    @property
    def _have_layers(self) -> bool:
        """Whether names of both tell layers."""
        return bool(self.layers.layers and self.layers.of)

    @cached_property
    def matches(self) -> tuple[Match, ...]:
        """What became of the groups that have an origin."""
        found = matches(self.comparison, self.groups, self.groups_of_model, self.layers)
        return tuple(match for match in found if match is not None)

    @cached_property
    def unmatched(self) -> tuple[Group, ...]:
        """The groups that have none."""
        matched = {match.group for match in self.matches}
        return tuple(group for group in self.groups if group not in matched)

    @cached_property
    def added(self) -> tuple[Group, ...]:
        """Groups that would have been found if the model had them.

        Some tensors are changed far more than others. So a group was added only where no tensor of
        the model is left that it may have been, and a head where it has no line of any.
        """
        origins = {origin for match in self.matches for origin in match.origins}
        left = [each for each in self.groups_of_model if each not in origins]
        if any(is_left_out(each) for each in self.comparison.theirs.tensors):
            return ()
        return tuple(
            group
            for group in self.unmatched
            if self._is_missing(group.numbers)
            if is_head(self.comparison.ours.tensors[group.numbers[0]])
            or not any(bool(each.stack) == bool(group.stack) for each in left)
        )

    @property
    def steady(self) -> list[Match]:
        """What became of groups whose lines are all comparable."""
        return [match for match in self.matches if match.is_steady]

    @cached_property
    def equal(self) -> float:
        """The share of equal lines, of those that no change of shape has broken up.

        Where there are steady tensors, these alone count, with those of which no line is found.
        """
        known = self.steady or [match for match in self.matches if not match.is_open]
        lost = [n for group in self.unmatched if group not in self.added for n in group.numbers]
        found = sum(match.found for match in known)
        found += sum(int(self.comparison.of_tensor[number]) for number in lost)
        comparable = sum(match.comparable for match in known) + sum(map(self._comparable, lost))
        return found / comparable if comparable else 0.0

    @property
    def rest(self) -> str:
        """What the sentences about structure leave, where all of its lines are the model's."""
        if any(match.is_open for match in self.matches):
            return ""
        is_rest = any(
            not match.is_steady
            or (match.change == "none" and not match.is_reordered and not self.is_renamed(match))
            for match in self.matches
        )
        return f", all else of {self.model}" if is_rest else f", all of {self.model}"

    @property
    def is_in_place(self) -> bool:
        """Whether each tensor that is found is another's alone, in the same layers."""
        sources = [
            each[0].tensor.name
            for number, each in self.comparison.sources.items()
            if number in self.numbers
        ]
        return len(set(sources)) == len(sources) and self.layers.is_identity

    def is_renamed(self, match: Match) -> bool:
        """Whether tensors that are as they were have other names."""
        is_same = match.change in ("none", "transposed", "reshaped", "resized")
        names = self._names(match.group, True)
        return is_same and names.isdisjoint(self._names(match.origins[0], False))

    def label(self, group: Group) -> str:
        """A group, for sentences."""
        if not group.stack:
            return plain(group.name)
        several = len({each.stack for each in self.groups if each.stack}) > 1
        return plain(f"{group.stack}.N.{group.name}" if several else group.name)

    def _layers(self, number: int) -> set[Layer]:
        return layers_of(self.comparison.ours.tensors[number])

    def _members(self, layer: Layer) -> list[int]:
        return [number for number in self.numbers if layer in self._layers(number)]

    @cached_property
    def _usual(self) -> float:
        """The share that is found of tensors in layers that are found, and in no layers."""
        origins = self.layers.origins.keys()
        found = [n for n in self.numbers if self._layers(n) & origins or not self._layers(n)]
        held = int(self.comparison.held[found].sum())
        return int(self.comparison.of_tensor[found].sum()) / held if held else 0.0

    def _is_missing(self, numbers: Collection[int]) -> bool:
        """Whether tensors would have been found if the model had them."""
        sources = self.comparison.sources
        is_mostly_found = 2 * sum(n in sources for n in self.numbers) > len(self.numbers)
        least = _LONG_TRAINED if is_mostly_found else _LEFT
        if self._usual < least or any(n in sources for n in numbers):
            return False
        held = sum(map(self._comparable, numbers))
        found = sum(int(self.comparison.of_tensor[number]) for number in numbers)
        return held * self._usual >= _MISSED and found <= max(1, _BY_CHANCE * held)

    def _comparable(self, number: int) -> float:
        """The sampled lines of a tensor whose length the model has."""
        lines = self.comparison.ours.tensors[number].lines
        inside = sum(n for length, n in lines.items() if length in self.comparison.theirs.lines)
        return int(self.comparison.held[number]) * inside / max(1, sum(lines.values()))

    def _names(self, group: Group, is_ours: bool) -> set[str]:
        """The names of a group, without the numbers of layers."""
        of = self.comparison.ours if is_ours else self.comparison.theirs
        names = [name for number in group.numbers for name in of.tensors[number].names]
        return {_without_layer(name) for name in names}


def _without_layer(name: str) -> str:
    position = position_of(name)
    stack = f"{position.stack}.0." if position.stack else ""
    return canonical_name(f"{stack}{position.kind}.weight")
