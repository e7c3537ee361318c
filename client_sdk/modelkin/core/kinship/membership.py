"""``TargetIndices``: the indices of a target, and which of them another support holds.

The answer is one bit an index of the target, however large the space is. ``rarity`` and ``cover``
weigh it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from modelkin.core.gaps import NO_GAPS, Gaps
from modelkin.core.indices import IndexArray, check_same_space, index_dtype
from modelkin.core.kernels.choice import kernels
from modelkin.core.packed import PackedSupport
from modelkin.errors import InvalidParameter

__all__ = ["MAX_INDICES", "TargetIndices"]

Words = npt.NDArray[np.uint64]

_BLOCK_WORDS = 1 << 18
"""How many words of a bitmap are read at a time."""

MAX_INDICES = 1 << 17
"""The most indices. Of a larger target a regular sample is used: the standard error of shares
is then 0.0014.
"""


@dataclass(frozen=True, slots=True)
class TargetIndices:
    """All indices of a target, or a regular sample of them; make one with :meth:`of`.

    Attributes:
        size: how many indices there are.
        whole: whether they are all indices of the target, not a sample.
    """

    size: int
    whole: bool
    _num_parameters: int
    _padded: IndexArray
    """The indices, padded with the last one to a multiple of 64, as kernels need them."""

    @classmethod
    def of(
        cls, target: PackedSupport, max_indices: int = MAX_INDICES, gaps: Gaps = NO_GAPS
    ) -> TargetIndices:
        """All indices of a target, or ``max_indices`` of them at equal distances in their order.

        Of a larger target only the sampled indices are ever in memory.

        Args:
            target: the support of the target.
            max_indices: the most indices.
            gaps: what is left out of these.

        Raises:
            InvalidParameter: the target has no index outside the gaps.
        """
        indices = (
            target.unpack().indices if target.k <= max_indices else _sample(target, max_indices)
        )
        if gaps:
            edges = np.array(gaps.ranges, np.uint64).ravel()
            outside = np.searchsorted(edges, indices.astype(np.uint64), side="right") % 2 == 0
            indices = indices[outside]
        if not indices.size:
            raise InvalidParameter(
                "the target has no index outside the tensors that no training changed, so nothing "
                "of it can be compared: send one of more indices",
                field="target",
            )
        size = int(indices.size)
        padding = np.full(-size % 64, indices[-1], indices.dtype)
        padded = np.concatenate([indices, padding])
        return cls(size, target.k <= max_indices, target.num_parameters, padded)

    @property
    def indices(self) -> IndexArray:
        """The indices, ascending, shape ``(size,)``."""
        return self._padded[: self.size]

    def membership_bits(self, support: PackedSupport) -> Words:
        """Set bit j where the support has ``indices[j]``; shape ``(ceil(size / 64),)``.

        Raises:
            SpaceMismatch: the support is of another number of parameters.
        """
        check_same_space(self._num_parameters, support.num_parameters)
        read = kernels().bits_at if support.kind == "bitmap" else kernels().members
        bits: Words = read(support.array, self._padded)
        bits[-1] &= np.uint64(2**64 - 1) >> np.uint64(-self.size % 64)
        return bits


def _sample(target: PackedSupport, count: int) -> IndexArray:
    ranks = np.arange(count, dtype=np.int64) * target.k // count
    array: Any = target.array
    found: Any = array[ranks] if target.kind == "list" else _at_ranks(array, ranks)
    indices: IndexArray = found.astype(index_dtype(target.num_parameters), copy=False)
    return indices


def _at_ranks(words: npt.NDArray[Any], ranks: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    """The positions of the set bits of these ranks in a bitmap; ranks ascend, and count from 0."""
    found, before = [], 0
    for at in range(0, words.size, _BLOCK_WORDS):
        block = words[at : at + _BLOCK_WORDS]
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
