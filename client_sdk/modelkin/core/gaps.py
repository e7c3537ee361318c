"""``Gaps``: the parts of the parameters that a comparison leaves out.

Two supports are compared over what is outside the gaps of both, and outside the tensors of their
space that no training changed. :mod:`modelkin.core.similarity.outside` compares a pair there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from modelkin.core.indices import MAX_PARAMETERS, IndexArray
from modelkin.errors import InvalidParameter, InvalidSupport

__all__ = [
    "BLOCK_WORDS",
    "MAX_RANGES",
    "NO_GAPS",
    "Gaps",
    "bits_before",
    "check_gaps",
    "clear_words",
    "indices_between",
    "words_between",
]

MAX_RANGES: Final = 1 << 16
"""The most ranges that a support does not cover."""

Integers = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]

BLOCK_WORDS: Final = 1 << 18
"""Words of a bitmap that are read at a time."""


@dataclass(frozen=True)
class Gaps:
    """Ranges of parameter indices that are left out; make one with :meth:`of`.

    Attributes:
        ranges: half-open, ascending, and neither empty nor adjacent.
    """

    ranges: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(cls, ranges: Iterable[Sequence[int]]) -> Gaps:
        """Gaps from half-open ranges in any order, which may be empty or overlap.

        Raises:
            InvalidParameter: a range begins below 0, or ends before it begins.
        """
        merged: list[tuple[int, int]] = []
        for begin, end in sorted((int(begin), int(end)) for begin, end in ranges):
            if begin < 0 or end < begin:
                raise InvalidParameter(
                    f"a gap from {begin} to {end} is not a range of parameters", field="gaps"
                )
            if begin == end:
                continue
            if merged and begin <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
            else:
                merged.append((begin, end))
        return cls(tuple(merged))

    @classmethod
    def from_bytes(cls, data: bytes | memoryview) -> Gaps:
        """Gaps of :meth:`to_bytes`.

        Raises:
            InvalidSupport: the ranges are not half-open, ascending and apart.
        """
        edges = np.frombuffer(data, "<u8").astype(np.uint64)
        if edges.size and not ((edges[1:] > edges[:-1]).all() and edges[-1] <= MAX_PARAMETERS):
            raise InvalidSupport("the gaps are not ranges that are ascending and apart")
        found = edges.tolist()
        return cls(tuple(zip(found[::2], found[1::2], strict=True)))

    def to_bytes(self) -> bytes:
        """The first index of each range and the one after its last, little-endian uint64."""
        return np.array(self.ranges, "<u8").tobytes()

    def without(self, other: Gaps) -> Gaps:
        """The parts of these ranges that lie outside others."""
        if not (self.ranges and other.ranges):
            return self
        parts: list[tuple[int, int]] = []
        for begin, end in self.ranges:
            for first, after in other.ranges:
                if after <= begin or first >= end:
                    continue
                if begin < first:
                    parts.append((begin, first))
                begin = max(begin, after)
            if begin < end:
                parts.append((begin, end))
        return Gaps(tuple(parts))

    def __bool__(self) -> bool:
        return bool(self.ranges)

    def __or__(self, other: Gaps) -> Gaps:
        """The union."""
        if not other.ranges or self is other:
            return self
        return Gaps.of((*self.ranges, *other.ranges)) if self.ranges else other

    @cached_property
    def size(self) -> int:
        """How many parameters are left out."""
        return sum(end - begin for begin, end in self.ranges)

    def in_tensors(self, ends: npt.NDArray[np.integer]) -> tuple[Integers, Integers]:
        """Cut the gaps at the ends of tensors.

        Args:
            ends: the first index after each tensor, ascending, such as ``Layout.ends``.

        Returns:
            The pieces, shape ``(n, 2)``, ascending; and the tensor that each lies in, shape
            ``(n,)``.
        """
        last = np.asarray(ends).astype(np.int64)
        pieces: list[tuple[int, int]] = []
        for begin, end in self.ranges:
            first, after = np.searchsorted(last, [begin, end], side="right")
            cuts = [cut for cut in last[first:after].tolist() if begin < cut < end]
            pieces += zip([begin, *cuts], [*cuts, end], strict=True)
        cut = np.array(pieces, np.int64).reshape(-1, 2)
        return cut, np.searchsorted(last, cut[:, 0], side="right").astype(np.int64)

    def sizes_in_tensors(self, ends: npt.NDArray[np.integer]) -> Integers:
        """How many parameters of each tensor are left out, shape ``(tensors,)``."""
        pieces, tensors = self.in_tensors(ends)
        sizes = np.zeros(len(ends), np.int64)
        np.add.at(sizes, tensors, pieces[:, 1] - pieces[:, 0])
        return sizes


NO_GAPS = Gaps()
"""Nothing is left out."""


def check_gaps(
    gaps: Gaps | Iterable[Sequence[int]], indices: IndexArray, m: int, *, ordered: bool = False
) -> Gaps:
    """The gaps of a support of these indices out of M.

    Raises:
        InvalidSupport: a gap is no range of parameters, an index lies in one, there are too many of
            them, or the support is ordered: the ranks of its indices would be of a part.
    """
    try:
        found = gaps if isinstance(gaps, Gaps) else Gaps.of(gaps)
    except (InvalidParameter, TypeError, ValueError) as error:
        raise InvalidSupport(f"gaps: {error}", field="gaps") from None
    if not found:
        return found
    if ordered:
        raise InvalidSupport("an ordered support has no gaps: its ranks are of all", field="gaps")
    if len(found.ranges) > MAX_RANGES or found.ranges[-1][1] > m:
        raise InvalidSupport(
            f"gaps are at most {MAX_RANGES} ranges of the {m} parameters", field="gaps"
        )
    for begin, end in found.ranges:
        inside = indices_between(indices, begin, end)
        if inside.size:
            raise InvalidSupport(
                f"index {int(inside[0])} lies in the gap from {begin} to {end}, which the support "
                f"does not cover",
                field="gaps",
            )
    return found


def clear_words(words: npt.NDArray[Any], first: int, gaps: Gaps) -> None:
    """Clear the bits of the gaps in some words of a bitmap, in place.

    Args:
        words: the words, in the last dimension.
        first: the number of the first word in its bitmap.
        gaps: the gaps of the whole bitmap.
    """
    origin, size = 64 * first, words.shape[-1]
    for begin, end in gaps.ranges:
        low, high = max(begin - origin, 0), min(end - origin, 64 * size)
        if low >= high:
            continue
        at, last = low >> 6, (high - 1) >> 6
        kept = ~_mask(low, high, at), ~_mask(low, high, last)
        words[..., at] &= kept[0]
        words[..., at + 1 : last] = 0
        if last > at:
            words[..., last] &= kept[1]


def indices_between(indices: IndexArray, begin: int, end: int) -> IndexArray:
    """The ascending indices of a range, which is not empty, without a copy."""
    low = np.searchsorted(indices, indices.dtype.type(begin), side="left")
    # The last one fits the dtype; the end may not.
    high = np.searchsorted(indices, indices.dtype.type(end - 1), side="right")
    return indices[low:high]


def words_between(words: npt.NDArray[Any], begin: int, end: int) -> Iterator[Words]:
    """The words of a range of a bitmap, some at a time, without the bits outside it."""
    at, last = begin >> 6, (end - 1) >> 6
    for first in range(at, last + 1, BLOCK_WORDS):
        after = min(last + 1, first + BLOCK_WORDS)
        block = words[first:after].astype(np.uint64)
        block[0] &= _mask(begin, end, first)
        block[-1] &= _mask(begin, end, after - 1)
        yield block


def bits_before(words: npt.NDArray[Any], places: Integers) -> Integers:
    """How many bits of a bitmap are set before each of some places, from the first of these on.

    Args:
        places: ascending, shape ``(n,)``.
    """
    at, found, total = places >> 6, np.zeros(len(places), np.int64), 0
    for first in range(int(at[0]), int(at[-1]) + 1, BLOCK_WORDS):
        block = words[first : min(first + BLOCK_WORDS, int(at[-1]) + 1)].astype(np.uint64)
        sums = np.concatenate([[0], np.cumsum(np.bitwise_count(block), dtype=np.int64)])
        low, high = np.searchsorted(at, [first, first + len(block)])
        inside = at[low:high] - first
        masks = (np.uint64(1) << (places[low:high] & 63).astype(np.uint64)) - np.uint64(1)
        found[low:high] = total + sums[inside] + np.bitwise_count(block[inside] & masks)
        total += int(sums[-1])
        found[high:] = total
    return found


def _mask(begin: int, end: int, word: int) -> np.uint64:
    """The bits of a word that lie in a range."""
    low, high = max(begin - 64 * word, 0), min(end - 64 * word, 64)
    return np.uint64(((1 << high) - 1) & ~((1 << low) - 1)) if low < high else np.uint64(0)
