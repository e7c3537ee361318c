"""What became of groups of tensors: as they were, transposed, fused, resized, copied.

They are judged by the lines in common with the model's groups and by the shapes.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Final, Literal

import numpy as np

from modelkin.core.fingerprints.comparison import (
    ALL_LINES,
    TENSOR_KEYS,
    TENSOR_LIMIT,
    Comparison,
    chance,
)
from modelkin.core.fingerprints.relations.groups import Group, many
from modelkin.core.fingerprints.relations.layer_maps import Layer, LayerMap, layers_of

__all__ = ["Change", "Match", "matches"]

Change = Literal[
    "none",
    "transposed",
    "reshaped",
    "turned",
    "fused",
    "split",
    "resized",
    "repeated",
    "grown",
    "other",
]
"""What a group is to its origins: ``grown`` are experts, of matrices that are none; ``resized`` are
tensors of which one side is longer or shorter; ``turned`` and ``other`` are left open."""

_PART: Final = 0.1
"""Kinds with so many of the lines that the first one has are origins as well."""
_FEW: Final = 0.1
"""Lines of one direction that are left in a tensor whose other direction has another order."""
_ALIKE: Final = 0.2
"""Kappa of tensors in one order, however much they were trained; others have about 0."""
_BROKEN: Final = 0.3
"""The most of the lines across that are left where the order is another one; where rows have other
scales, more are."""
_RARE: Final = 1e-6
"""The probability below which lines are not all equal by luck."""
_LEAST: Final = 12
"""Keys of a direction that tell."""


@dataclass(frozen=True)
class Match:
    """What became of a group.

    Attributes:
        group: the checkpoint's.
        origins: the model's groups that have its lines, the most first.
        change: what it is to them.
        found: the sampled lines that are equal, of those that ``change`` leaves.
        comparable: how many there were, at least 1.
        resized: the sides before and after, where one was resized or repeated.
        is_reordered: whether the lines have another order, so that those across are broken up.
    """

    group: Group
    origins: tuple[Group, ...]
    change: Change
    found: int
    comparable: float
    resized: tuple[int, int] | None = None
    is_reordered: bool = False

    @property
    def is_open(self) -> bool:
        """Whether it is left open what became of it."""
        return self.change in ("turned", "other")

    @property
    def is_steady(self) -> bool:
        """Whether all lines that were not changed are equal.

        Other rows, or those of several tensors in one, move the scales of places, and a few lines
        with them.
        """
        moving = self.change in ("fused", "split", "resized", "repeated") or len(self.origins) > 1
        return not moving and not self.is_open


def matches(
    comparison: Comparison, groups: Sequence[Group], of_model: Sequence[Group], layers: LayerMap
) -> tuple[Match | None, ...]:
    """What became of groups; None for those without an origin in the model.

    Args:
        comparison: of the checkpoint and the model.
        groups: the checkpoint's.
        of_model: the model's.
        layers: where its layers come from.
    """
    meetings = _meetings(comparison, groups, of_model, layers)
    origins = [
        _origins(comparison, group, of_model, meetings.get(number, {}), len(groups))
        for number, group in enumerate(groups)
    ]
    children = defaultdict[Group, list[Group]](list)
    for group, found in zip(groups, origins, strict=True):
        for origin in found:
            children[origin].append(group)
    made = [
        _match(comparison, group, found, meetings[number], children) if found else None
        for number, (group, found) in enumerate(zip(groups, origins, strict=True))
    ]
    order = any(each.is_reordered for each in made if each)
    turned = any(each.change == "transposed" for each in made if each)
    return tuple(_of_turned(each, order, turned) if each else None for each in made)


def _of_turned(match: Match, order: bool, turned: bool) -> Match:
    """What became of tensors whose order is not the origin's, as other tensors tell it.

    Of a square one, or of few lines, the sample alone cannot.
    """
    if match.change != "turned" or order == turned:
        return match
    if turned:
        return replace(match, change="transposed")
    comparable = max(1, match.found)
    return replace(match, change="none", comparable=comparable, is_reordered=True)


_Meetings = Mapping[Group, set[tuple[int, int]]]
"""For groups of the model, the tensors and keys of a group that meet them."""


def _meetings(
    comparison: Comparison, groups: Sequence[Group], of_model: Sequence[Group], layers: LayerMap
) -> dict[int, _Meetings]:
    """The lines in common of groups; where the layers are known, of these alone."""
    mine = {number: at for at, group in enumerate(groups) for number in group.numbers}
    its = {number: at for at, group in enumerate(of_model) for number in group.numbers}
    allowed: dict[int, frozenset[Layer]] = {}
    for number in mine:
        places = layers_of(comparison.ours.tensors[number])
        allowed[number] = frozenset().union(*(layers.copies.get(each, ()) for each in places))
    places_of_model = [layers_of(tensor) for tensor in comparison.theirs.tensors]
    # By numbers, since the hash of a group reads those of all its tensors.
    found = defaultdict[int, dict[int, set[tuple[int, int]]]](lambda: defaultdict(set))
    meetings = comparison.meetings
    for first, second, at in zip(
        meetings.first.tolist(), meetings.second.tolist(), meetings.at.tolist(), strict=True
    ):
        if first not in mine:
            continue
        there = places_of_model[second]
        if not allowed[first] or not there or there & allowed[first]:
            found[mine[first]][its[second]].add((first, at))
    return {
        number: {of_model[at]: keys for at, keys in places.items()}
        for number, places in found.items()
    }


def _origins(
    comparison: Comparison,
    group: Group,
    of_model: Sequence[Group],
    meetings: _Meetings,
    groups: int,
) -> tuple[Group, ...]:
    """The model's groups that have lines of one, beyond chance."""
    limit = TENSOR_LIMIT - math.log10(max(1, groups * len(of_model)))
    ranked = sorted(meetings, key=lambda each: -len(meetings[each]))
    least = max(TENSOR_KEYS, _PART * len(meetings[ranked[0]])) if ranked else 0
    return tuple(
        each
        for each in ranked
        if len(meetings[each]) >= least and _chance(comparison, group, each, meetings) < limit
    )


def _chance(comparison: Comparison, group: Group, origin: Group, meetings: _Meetings) -> float:
    """The logarithm of the probability of so many lines in common."""
    ours, theirs = comparison.ours, comparison.theirs
    first, second = Counter[int](), Counter[int]()
    for number in group.numbers:
        first.update(ours.tensors[number].lines)
    for number in origin.numbers:
        second.update(theirs.tensors[number].lines)
    return chance(len(meetings[origin]), first, second, ours.scale)[1]


def _match(
    comparison: Comparison,
    group: Group,
    origins: tuple[Group, ...],
    meetings: _Meetings,
    children: Mapping[Group, Sequence[Group]],
) -> Match:
    lengths = comparison.ours.lengths
    met = set[tuple[int, int]]().union(*(meetings[each] for each in origins))
    found = Counter(int(lengths[at]) for _, at in met)
    held = Counter[int](lengths[np.isin(comparison.ours.owners, group.numbers)].tolist())
    counts = {each: len(meetings[each]) for each in meetings}
    change, length, before = _change(comparison, group, origins, children, counts)
    if not length:
        return _of_whole(comparison, group, origins, change, found, held)
    across = sum(group.sides) - length
    comparable = held[length] / (2 if across == length else 1)
    if change == "resized":
        comparable *= min(1, before / across)
    resized = (before, across) if change in ("resized", "repeated") else None
    at_most = min(found[length], int(comparable))
    return Match(group, origins, change, at_most, max(1, comparable), resized)


def _of_whole(
    comparison: Comparison,
    group: Group,
    origins: tuple[Group, ...],
    change: Change,
    found: Mapping[int, int],
    held: Mapping[int, int],
) -> Match:
    """A group whose lines of both directions may be found."""
    rows, columns = group.sides
    total, of_total = sum(found.values()), max(1, sum(held.values()))
    plain = Match(group, origins, change, total, of_total)
    kappa = _kappa(comparison, group, origins[0])
    if change == "grown":
        return plain
    if rows != columns and (ordered := _reordered(plain, found, held)):
        return ordered
    if change != "none":
        return plain
    if kappa is not None and kappa >= _ALIKE:
        return plain
    if rows == columns:
        if kappa is None or of_total < 2 * _LEAST:
            return plain
        is_whole = total >= ALL_LINES * of_total
        return replace(plain, change="transposed" if is_whole else "turned")
    shares = sorted((found.get(n, 0) / max(1, held.get(n, 0)), n) for n in (rows, columns))
    (low, _), (high, length) = shares
    enough = min(held.get(rows, 0), held.get(columns, 0)) >= _LEAST
    if enough and high >= 0.2 and low <= _FEW * high:
        return Match(group, origins, change, found[length], held[length], None, True)
    return plain if kappa is None else replace(plain, change="turned")


def _reordered(plain: Match, found: Mapping[int, int], held: Mapping[int, int]) -> Match | None:
    """A group of which all lines of one direction are equal, and those across are not.

    Only another order does that: what changes many lines changes those across as well.
    """
    for length, other in (plain.group.sides, plain.group.sides[::-1]):
        count, across = held.get(length, 0), (found.get(other, 0) + 1) / (held.get(other, 0) + 2)
        if found.get(length, 0) == count and across < _BROKEN and across**count < _RARE:
            return replace(plain, found=count, comparable=count, is_reordered=True)
    return None


def _kappa(comparison: Comparison, group: Group, origin: Group) -> float | None:
    """How alike its tensors are to those of an origin, where both have one order."""
    names = {comparison.theirs.tensors[number].name for number in origin.numbers}
    kappas = [
        source.kappa
        for number in group.numbers
        for source in comparison.sources.get(number, ())[:1]
        if source.kappa is not None and source.tensor.name in names
    ]
    return float(np.mean(kappas)) if kappas else None


def _change(
    comparison: Comparison,
    group: Group,
    origins: tuple[Group, ...],
    children: Mapping[Group, Sequence[Group]],
    counts: Mapping[Group, int],
) -> tuple[Change, int, int]:
    """The change; the length of the lines that it leaves, 0 for all; the other side before."""
    origin, size = origins[0], prod(group.shape)
    shared = max(set(group.sides).intersection(*(each.sides for each in origins)), default=0)
    whole = sum(prod(each.shape) * many(comparison.theirs, each) for each in origins)
    is_single = len(origins) == 1
    of_experts = any(each.is_expert or each.matrices > 1 for each in origins)
    has_sides = is_single and sorted(group.sides) == sorted(origin.sides)
    if (group.is_expert or group.matrices > 1) and not of_experts:
        if has_sides:
            return "grown", 0, 0
        fits = shared and size == whole * group.matrices
        return ("grown" if fits else "other"), shared if fits else 0, 0
    if size == whole and not (is_single and size == prod(origin.shape)):
        return ("fused", 0, 0) if has_sides else ("fused" if shared else "other", shared, 0)
    if not is_single:
        return "other", 0, 0
    if has_sides and group.matrices == origin.matrices:
        if group.shape == origin.shape:
            return "none", 0, 0
        return ("transposed" if group.shape == origin.shape[::-1] else "reshaped"), 0, 0
    if has_sides:
        return ("split" if group.matrices == 1 else "other"), 0, 0
    if not shared or group.matrices != origin.matrices:
        return "other", 0, 0
    return _resized(comparison, group, origin, children, counts, shared)


def _resized(
    comparison: Comparison,
    group: Group,
    origin: Group,
    children: Mapping[Group, Sequence[Group]],
    counts: Mapping[Group, int],
    shared: int,
) -> tuple[Change, int, int]:
    """The change of a group of which one side is longer or shorter than its origin's."""
    before, across = sum(origin.sides) - shared, sum(group.sides) - shared
    names = max(len(comparison.theirs.tensors[number].names) for number in origin.numbers)
    siblings = sum(prod(each.shape) * many(comparison.ours, each) for each in children[origin])
    pieces = sum(many(comparison.ours, each) for each in children[origin])
    # A tied table may have become one for each name.
    if pieces > max(names, many(comparison.theirs, origin)):
        is_split = siblings == prod(origin.shape)
        return ("split" if is_split else "other"), shared if is_split else 0, 0
    distinct = max(comparison.ours.tensors[n].lines.get(shared, 0) for n in group.numbers)
    is_multiple = across > before and across % before == 0
    if is_multiple and distinct <= before + (across if across == shared else 0):
        return "repeated", shared, before
    others = (count for each, count in counts.items() if each != origin)
    if counts[origin] < _LEAST or max(others, default=0) > max(1, _FEW / 2 * counts[origin]):
        return "other", 0, 0
    return "resized", shared, before
