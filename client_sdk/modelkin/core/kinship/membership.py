"""``TargetIndices``: the indices of a target that other supports are asked for, and their holders.

What a support holds is one bit an index of the target, however large the space is. It never says
what holding an index is worth: that is ``rarity``'s, and ``cover``'s.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from modelkin.core.indices import IndexArray, check_same_space, index_dtype
from modelkin.core.kernels.choice import kernels
from modelkin.core.packed import PackedSupport

__all__ = ["MOST_INDICES", "TargetIndices"]

Words = npt.NDArray[np.uint64]

_BLOCK = 1 << 18
"""Words of a bitmap that are looked at together."""

MOST_INDICES = 1 << 17
"""Indices asked for at most. Of a larger target it is an even sample, whose shares are right within
a standard error of 0.0014.
"""


@dataclass(frozen=True, slots=True)
class TargetIndices:
    """Some indices of a target, evenly spread over all of them; make one with :meth:`of`.

    Attributes:
        size: how many they are.
        whole: these are all indices of the target, not a sample.
    """

    size: int
    whole: bool
    _num_parameters: int
    _padded: IndexArray
    """The indices, and the last one again up to a whole word of them, as kernels take them."""

    @classmethod
    def of(cls, target: PackedSupport, most: int = MOST_INDICES) -> TargetIndices:
        """All indices of a target, or ``most`` of them at equal distances in their order.

        Of a larger target no more than these are ever in memory.
        """
        indices = target.unpack().indices if target.k <= most else _sampled(target, most)
        size = int(indices.size)
        padding = np.full(-size % 64, indices[-1], indices.dtype)
        padded = np.concatenate([indices, padding])
        return cls(size, target.k <= most, target.num_parameters, padded)

    @property
    def indices(self) -> IndexArray:
        """Ascending, shape ``(size,)``."""
        return self._padded[: self.size]

    def held_by(self, support: PackedSupport) -> Words:
        """Bit j is set where the support has ``indices[j]``; shape ``(ceil(size / 64),)``.

        Raises:
            SpaceMismatch: the support is of another number of parameters.
        """
        check_same_space(self._num_parameters, support.num_parameters)
        look = kernels().bits_at if support.kind == "bitmap" else kernels().members
        bits: Words = look(support.array, self._padded)
        bits[-1] &= np.uint64(2**64 - 1) >> np.uint64(-self.size % 64)
        return bits


def _sampled(target: PackedSupport, most: int) -> IndexArray:
    ranks = np.arange(most, dtype=np.int64) * target.k // most
    array: Any = target.array
    found: Any = array[ranks] if target.kind == "list" else _at_ranks(array, ranks)
    indices: IndexArray = found.astype(index_dtype(target.num_parameters), copy=False)
    return indices


def _at_ranks(words: npt.NDArray[Any], ranks: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    """Where the set bits of these ranks are in a bitmap; ranks ascend, and count from 0."""
    found, before = [], 0
    for at in range(0, words.size, _BLOCK):
        block = words[at : at + _BLOCK]
        upto = np.cumsum(np.bitwise_count(block), dtype=np.int64)
        ends = np.searchsorted(ranks, [before, before + int(upto[-1])])
        here = ranks[ends[0] : ends[1]] - before
        word = np.searchsorted(upto, here, side="right")
        inside = here - np.where(word, upto[word - 1], 0)
        bits = np.unpackbits(block[word].view(np.uint8).reshape(-1, 8), axis=1, bitorder="little")
        bit = np.argmax(np.cumsum(bits, axis=1, dtype=np.uint8) > inside[:, None], axis=1)
        found.append((at + word) * 64 + bit)
        before += int(upto[-1])
    return np.concatenate(found)
