"""``Correspondence``: the parameters of one layout that are those of another, and what differs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from modelkin.core.gaps import NO_GAPS, Gaps
from modelkin.core.indices import IndexArray
from modelkin.core.layout import Layout, TensorSpec
from modelkin.core.matching.names import HARMLESS
from modelkin.core.matching.search import Piece, find_pieces, is_tied
from modelkin.core.octaves import Octaves
from modelkin.core.quoting import quote
from modelkin.errors import SpaceMismatch

__all__ = ["MIN_PART", "MIN_SHARE", "Correspondence", "correspond"]

MIN_SHARE: Final = 0.8
"""The least share of a space's parameters that a checkpoint of the space has."""
MIN_PART: Final = 0.5
"""The least share of all parameters of either that is common: a small part says little of a model.
"""
_SHOWN: Final = 5
"""Tensors that a text names; it counts the others."""


@dataclass(frozen=True)
class Correspondence:
    """The common parameters of two layouts.

    Attributes:
        source, target: the layouts.
        pieces: the common stretches, in the order of the target.
    """

    source: Layout
    target: Layout
    pieces: tuple[Piece, ...]

    @cached_property
    def covered(self) -> int:
        """How many parameters are common."""
        return sum(piece.size for piece in self.pieces)

    @property
    def share(self) -> float:
        """The share of the target that is common."""
        return self.covered / self.target.num_parameters

    @property
    def complete(self) -> bool:
        """Whether the source has all parameters of the target."""
        return self.covered == self.target.num_parameters

    @property
    def equal(self) -> bool:
        """Whether the two have the same parameters, but for copies and buffers of the source."""
        beyond = (self.source.tensors[at].name for at in self._beyond)
        harmless = all(name in self._copies or HARMLESS.search(name) for name in beyond)
        return self.complete and harmless and not self.cropped

    @cached_property
    def common(self) -> Layout:
        """The layout of the common parameters alone, in the order of the target."""
        if self.complete:
            return self.target
        return Layout.of((self._name_of(piece), piece.shape) for piece in self.pieces)

    def _name_of(self, piece: Piece) -> str:
        mine, theirs = self._tensors_of(piece)
        return theirs.name if piece.shape[1:] == theirs.shape[1:] else mine.name

    @cached_property
    def renamed(self) -> tuple[tuple[str, str], ...]:
        """The tensors that have another name in the target, each with that."""
        return tuple(
            (mine.name, theirs.name)
            for mine, theirs in map(self._tensors_of, self.pieces)
            if mine.name != theirs.name
        )

    @property
    def missing(self) -> tuple[TensorSpec, ...]:
        """The tensors of the target that the source does not have at all."""
        held = {piece.target for piece in self.pieces}
        return tuple(
            spec for at, spec in enumerate(self.target.tensors) if at not in held and spec.size
        )

    @property
    def beyond(self) -> tuple[TensorSpec, ...]:
        """The tensors of the source that the target does not have at all."""
        return tuple(self.source.tensors[at] for at in self._beyond)

    @property
    def cropped(self) -> tuple[tuple[TensorSpec, TensorSpec], ...]:
        """The tensors of which only the first rows are common, as both have them."""
        return tuple(
            (mine, theirs)
            for mine, theirs in map(self._tensors_of, self.pieces)
            if mine.shape != theirs.shape and mine.shape[1:] == theirs.shape[1:]
        )

    @property
    def fits(self) -> bool:
        """Whether the source has so much of the target that it is compared over that part.

        The tables of words of the target beside one that is common do not count: a tied one that is
        saved once is no smaller part of its network.
        """
        copies = sum(spec.size for spec in self._missing_copies())
        needed = MIN_SHARE * (self.target.num_parameters - copies)
        return self.covered >= max(needed, MIN_PART * self._larger)

    @property
    def _larger(self) -> int:
        return max(self.source.num_parameters, self.target.num_parameters)

    def _missing_copies(self) -> list[TensorSpec]:
        shapes = {
            theirs.shape for _, theirs in map(self._tensors_of, self.pieces) if is_tied(theirs)
        }
        return [spec for spec in self.missing if is_tied(spec) and spec.shape in shapes]

    def require_part(self, source: str = "this layout", target: str = "the other layout") -> None:
        """Require that :attr:`fits`; arguments as for :meth:`difference`.

        Raises:
            SpaceMismatch: too little is common; names the tensors that differ.
        """
        if not self.fits:
            raise SpaceMismatch(self.difference(source, target))

    def require_equal(self, source: str = "this layout", target: str = "the other layout") -> None:
        """Require that the two have the same parameters; arguments as for :meth:`difference`.

        Raises:
            SpaceMismatch: they differ; names the tensors that do.
        """
        if not self.equal:
            raise SpaceMismatch(self.difference(source, target))

    @property
    def note(self) -> str | None:
        """A remark on tensors that have other names in the target, or differ; None without any."""
        return self.remark()

    def remark(self, shown: int = _SHOWN) -> str | None:
        """:attr:`note`, of so many tensors of each kind."""
        said = []
        if self.renamed:
            (mine, theirs), count = self.renamed[0], len(self.renamed)
            said.append(
                f"{count} tensor{'s have' if count > 1 else ' has'} another name in the space: "
                f"{quote(mine)} is {quote(theirs)} there"
            )
        if not self.complete:
            said.append(
                f"it is compared over {self.share:.1%} of the space's parameters, those that it has"
            )
        if not self.equal:
            said.append(self.difference("it", "the space", shown))
        return "; ".join(said) or None

    def gaps(self, own: Gaps = NO_GAPS) -> Gaps:
        """The parameters of the target that the source does not have.

        Args:
            own: those that a support of the source does not cover.
        """
        if own:
            return self.gaps() | self._translated_gaps(own)
        ends = [0, *self.target.ends.tolist()]
        found, at = [], 0
        for piece in self.pieces:
            begin = int(ends[piece.target]) + piece.target_offset
            if begin > at:
                found.append((at, begin))
            at = begin + piece.size
        if at < self.target.num_parameters:
            found.append((at, self.target.num_parameters))
        return Gaps.of(found)

    def _translated_gaps(self, own: Gaps) -> Gaps:
        moved = []
        for begin, target, last in self._stretches():
            for first, after in own.ranges:
                low, high = max(first, begin), min(after, last + 1)
                if low < high:
                    moved.append((low - begin + target, high - begin + target))
        return Gaps.of(moved)

    def translated(self, indices: IndexArray) -> IndexArray:
        """The indices of the source as those of the target, without those that it does not have.

        Args:
            indices: ascending, shape ``(K,)``.

        Returns:
            Ascending, a new array of the same dtype.
        """
        parts, shifts = self._moves(indices)
        moved: IndexArray = np.concatenate([indices[part] for part in parts] or [indices[:0]])
        moved += np.repeat(shifts, [part.stop - part.start for part in parts])
        return moved

    def moved(
        self, indices: IndexArray, octaves: Octaves | None
    ) -> tuple[IndexArray, Octaves | None]:
        """The :meth:`translated` indices of a support and their octaves, if it has these.

        Raises:
            SpaceMismatch: no index is left; or not all are, and octaves of some of the indices are
                not those of their ranks.
        """
        moved = self.translated(indices)
        lost = indices.size - moved.size
        if not moved.size or (lost and octaves is not None):
            remedy = "the octaves of the others are not those of their ranks: select with order="
            raise SpaceMismatch(
                f"{lost} of {indices.size} indices are of tensors that the other layout does not "
                f"have" + (f", and {remedy}" if moved.size else "")
            )
        if octaves is None:
            return moved, None
        parts, _ = self._moves(indices)
        return moved, np.concatenate([octaves[part] for part in parts])

    def stretches_in(self, layout: Layout) -> list[tuple[int, int]]:
        """The first index and the one after the last of each common stretch, in target order.

        Args:
            layout: a layout that has the source's tensors among others.
        """
        begins = {
            spec.name: int(end) - spec.size
            for spec, end in zip(layout.tensors, layout.ends.tolist(), strict=True)
        }
        found: list[tuple[int, int]] = []
        for piece in self.pieces:
            begin = begins[self.source.tensors[piece.source].name] + piece.source_offset
            if found and found[-1][1] == begin:
                found[-1] = (found[-1][0], begin + piece.size)
            elif piece.size:
                found.append((begin, begin + piece.size))
        return found

    def difference(
        self,
        source: str = "this layout",
        target: str = "the other layout",
        shown: int = _SHOWN,
    ) -> str:
        """The tensors that differ, in words.

        Args:
            source, target: what has the layouts, for the text.
            shown: how many of each kind are named; the others are counted.
        """
        mine = {spec.name: spec for spec in self.beyond}
        theirs = {spec.name: spec for spec in self.missing}
        shapes = [*self.cropped, *((mine[n], theirs[n]) for n in mine if n in theirs)]
        said = [
            *(
                f"tensor {quote(one.name)} has shape {list(one.shape)} in {source} and "
                f"{list(other.shape)} in {target}"
                for one, other in shapes[:shown]
            ),
            _named([t for t in self.missing if t.name not in mine], f"only in {target}", shown),
            _named([t for t in self.beyond if t.name not in theirs], f"only in {source}", shown),
        ]
        more = len(shapes) - shown
        return "; ".join(filter(None, said)) + (f"; {more} more shapes differ" * (more > 0))

    @cached_property
    def _beyond(self) -> list[int]:
        used = {piece.source for piece in self.pieces}
        return [at for at, spec in enumerate(self.source.tensors) if at not in used and spec.size]

    @cached_property
    def _copies(self) -> set[str]:
        """The tables of words of the source beside one of the same shape that is common."""
        used = {piece.source for piece in self.pieces}
        shapes = {self.source.tensors[at].shape for at in used if is_tied(self.source.tensors[at])}
        alone = (self.source.tensors[at] for at in self._beyond)
        return {spec.name for spec in alone if is_tied(spec) and spec.shape in shapes}

    def _tensors_of(self, piece: Piece) -> tuple[TensorSpec, TensorSpec]:
        return self.source.tensors[piece.source], self.target.tensors[piece.target]

    def _moves(self, indices: IndexArray) -> tuple[list[slice], npt.NDArray[Any]]:
        """The indices of each stretch in the order of the target, and how far they move."""
        places = np.array(list(self._stretches()), np.uint64).reshape(-1, 3)
        begins, targets, lasts = places[:, 0], places[:, 1], places[:, 2]
        low = np.searchsorted(indices, begins.astype(indices.dtype), side="left")
        high = np.searchsorted(indices, lasts.astype(indices.dtype), side="right")
        shifts = (targets - begins).astype(indices.dtype)  # differences wrap, and sums wrap back
        return [slice(a, b) for a, b in zip(low.tolist(), high.tolist(), strict=True)], shifts

    def _stretches(self) -> Iterator[tuple[int, int, int]]:
        """The first index of each common stretch in both layouts, and its last in the source."""
        mine, theirs = [0, *self.source.ends.tolist()], [0, *self.target.ends.tolist()]
        stretch: tuple[int, int, int] | None = None
        for piece in self.pieces:
            if not piece.size:
                continue
            begin = int(mine[piece.source]) + piece.source_offset
            target = int(theirs[piece.target]) + piece.target_offset
            if stretch is not None:
                first, at, last = stretch
                if last + 1 == begin and target - at == begin - first:
                    stretch = first, at, last + piece.size
                    continue
                yield stretch
            stretch = begin, target, begin + piece.size - 1
        if stretch is not None:
            yield stretch


def correspond(source: Layout, target: Layout) -> Correspondence:
    """Find the tensors of one layout in another.

    Args:
        source: the layout of a checkpoint or a network.
        target: the layout of a space.
    """
    return Correspondence(source, target, tuple(find_pieces(source, target)))


def _named(specs: Sequence[TensorSpec], what: str, shown: int) -> str:
    """Some tensors by name and shape, and how many more there are."""
    if not specs:
        return ""
    names = ", ".join(f"{quote(spec.name)} {list(spec.shape)}" for spec in specs[:shown])
    more = f" and {len(specs) - shown} more" if len(specs) > shown else ""
    kind = "tensor" if len(specs) == 1 else "tensors"
    return f"{kind} {names}{more} {'is' if len(specs) == 1 else 'are'} {what}"
