"""``find_pieces``: the tensors of one layout that are those of another, piece by piece.

Tensors are found by name, then by the names that mean the same, then where one network is a part of
the other under a name that no table has. Those that differ in their first dimension alone have
their first rows in common: rows follow each other, so no index moves within them. Nothing else is
joined: no tensors of other shapes, and no two into one.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from modelkin.core.layout import Layout, TensorSpec
from modelkin.core.matching.names import TIED, canonical_name, expert_of

__all__ = ["Piece", "find_pieces", "is_tied"]

_Key = Callable[[str], str]
"""A function of a tensor's name by which it is found."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of a tensor that is one of another tensor, row by row.

    Attributes:
        source, target: the tensors' places in their layouts.
        source_offset, target_offset: the first element in each.
        shape: the common shape.
    """

    source: int
    target: int
    source_offset: int
    target_offset: int
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """How many parameters it has."""
        return math.prod(self.shape)


def find_pieces(source: Layout, target: Layout) -> list[Piece]:
    """The pieces that two layouts have in common, in the order of the target."""
    search = _Search(source, target)
    search.pair(lambda name: name)
    if search.is_open:
        search.pair(canonical_name)
    if search.is_open:
        search.pair_bodies()
    if search.is_open:
        search.pair_experts()
        search.pair_tied()
    return sorted(search.pieces, key=lambda piece: (piece.target, piece.target_offset))


def is_tied(spec: TensorSpec) -> bool:
    """Whether a tensor is a table of words, which may be tied with another one."""
    return len(spec.shape) == 2 and canonical_name(spec.name) in TIED


class _Search:
    """The tensors of two layouts that have no counterpart yet, and the pieces found."""

    def __init__(self, source: Layout, target: Layout) -> None:
        self.source, self.target = source.tensors, target.tensors
        self.mine = dict.fromkeys(range(len(self.source)))
        self.theirs = dict.fromkeys(range(len(self.target)))
        self.pieces: list[Piece] = []

    @property
    def is_open(self) -> bool:
        """Whether both have tensors without a counterpart."""
        return bool(self.mine and self.theirs)

    def pair(self, key: _Key, of_theirs: _Key | None = None) -> None:
        """Pair the tensors whose names have the same key, where each is the only one with it.

        Args:
            key: the key of a name of either; of the source alone with the next.
            of_theirs: that of a name of the target.
        """
        mine = _only(self.mine, self.source, key)
        for name, at in _only(self.theirs, self.target, of_theirs or key).items():
            if name in mine:
                self._join(mine[name], at)

    def pair_bodies(self) -> None:
        """Pair a network with the part of the other that has most of its parameters."""
        for prefix in _bodies(self.source):
            self.pair(_within(prefix), canonical_name)
        for prefix in _bodies(self.target):
            self.pair(canonical_name, _within(prefix))

    def pair_experts(self) -> None:
        """Pair the matrices of experts with the stack that has them, either way round."""
        self._pair_stacks(self.mine, self.source, self.theirs, self.target, _split_first)
        self._pair_stacks(self.theirs, self.target, self.mine, self.source, _stack_first)

    def pair_tied(self) -> None:
        """Pair the two tables of words under different names, where each network has one."""
        mine = [at for at, spec in enumerate(self.source) if is_tied(spec)]
        theirs = [at for at, spec in enumerate(self.target) if is_tied(spec)]
        if len(mine) == len(theirs) == 1 and mine[0] in self.mine and theirs[0] in self.theirs:
            self._join(mine[0], theirs[0])

    def _join(self, mine: int, theirs: int) -> None:
        shape = _common_shape(self.source[mine].shape, self.target[theirs].shape)
        if shape is not None:
            self.pieces.append(Piece(mine, theirs, 0, 0, shape))
            del self.mine[mine], self.theirs[theirs]

    def _pair_stacks(
        self,
        split: dict[int, None],
        split_tensors: Sequence[TensorSpec],
        stacked: dict[int, None],
        stacks: Sequence[TensorSpec],
        piece: Callable[[int, int, int, tuple[int, ...]], Piece],
    ) -> None:
        named = _only(stacked, stacks, canonical_name)
        found: dict[int, list[int]] = defaultdict(list)
        taken: set[tuple[int, int]] = set()
        for at in split:
            place = expert_of(canonical_name(split_tensors[at].name))
            if place is None or place[0] not in named:
                continue
            stack, (_, expert, half) = named[place[0]], place
            offset = _offset(stacks[stack].shape, split_tensors[at].shape, expert, half)
            if offset is not None and (stack, offset) not in taken:
                taken.add((stack, offset))
                self.pieces.append(piece(at, stack, offset, split_tensors[at].shape))
                found[stack].append(at)
        for stack, members in found.items():
            del stacked[stack]
            for at in members:
                del split[at]


def _bodies(tensors: Sequence[TensorSpec]) -> list[str]:
    """The prefixes that stand before more than half of a network's parameters, shortest first."""
    sizes = [(canonical_name(spec.name), spec.size) for spec in tensors]
    total, found = sum(size for _, size in sizes), [""]
    while True:
        parts: dict[str, int] = defaultdict(int)
        for name, size in sizes:
            part, dot, _ = name.removeprefix(found[-1]).partition(".")
            if dot and name.startswith(found[-1]):
                parts[part] += size
        largest = max(parts, key=parts.__getitem__, default="")
        if 2 * parts[largest] <= total:
            return found[1:]
        found.append(f"{found[-1]}{largest}.")


def _within(prefix: str) -> _Key:
    """The canonical name of what has a prefix, as if it were the whole network."""
    return lambda name: canonical_name(canonical_name(name).removeprefix(prefix))


def _split_first(split: int, stack: int, offset: int, shape: tuple[int, ...]) -> Piece:
    return Piece(split, stack, 0, offset, shape)


def _stack_first(split: int, stack: int, offset: int, shape: tuple[int, ...]) -> Piece:
    return Piece(stack, split, offset, 0, shape)


def _offset(stack: tuple[int, ...], part: tuple[int, ...], expert: int, half: int) -> int | None:
    """The first element of an expert's matrix in a stack; None if the shapes do not fit."""
    if len(stack) != 3 or len(part) != 2 or expert >= stack[0] or stack[2] != part[1]:
        return None
    halves = 2 if half or stack[1] != part[0] else 1
    if stack[1] != halves * part[0]:
        return None
    return expert * stack[1] * stack[2] + half * part[0] * part[1]


def _common_shape(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...] | None:
    """The shape that two tensors have in common; None if more than the first dimension differs."""
    if a == b:
        return a
    if len(a) != len(b) or not a or a[1:] != b[1:] or not min(a[0], b[0]):
        return None
    return min(a[0], b[0]), *a[1:]


def _only(
    places: Iterable[int], tensors: Sequence[TensorSpec], key: Callable[[str], str]
) -> dict[str, int]:
    """The tensors by the keys of their names, without keys that several have."""
    found: dict[str, int | None] = {}
    for at in places:
        name = key(tensors[at].name)
        found[name] = None if name in found else at
    return {name: at for name, at in found.items() if at is not None}
