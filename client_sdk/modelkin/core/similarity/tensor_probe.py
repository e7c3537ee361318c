"""``TensorProbe``: a stretch of each tensor, in which supports are compared quickly.

The stretches of a large layout are a sample, so that little is read of a support whatever its size;
those of a small one are all of it. A probe knows the sizes of tensors alone: neither their names
nor their shapes, which take a megabyte in a large layout.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from modelkin.core.indices import check_same_space, index_dtype
from modelkin.core.kernels.choice import kernels
from modelkin.core.packed import PackedSupport

__all__ = ["POSITIONS", "ProbedSupport", "TensorProbe"]

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]

POSITIONS = 1 << 18
"""Entries of all tensors that are looked at, about."""
_MIN_POSITIONS, _MAX_ROWS_SIZE, _ROWS = 1 << 10, 1 << 15, 4
"""The fewest entries of a tensor, and of its rows at most: a regular table repeats them.

They are rows of a square matrix. Of one that is twice as wide, three lie in them.
"""


@dataclass(frozen=True)
class ProbedSupport:
    """The part of a support that lies in the stretches of a probe.

    Attributes:
        words: a bit for each entry; each tensor begins at a word of its own.
        counts: how many indices lie in the stretch of each tensor, shape ``(tensors,)``.
    """

    words: Words
    counts: Floats


@dataclass(frozen=True)
class TensorProbe:
    """A stretch of each tensor of a layout; make one with :meth:`of`.

    Attributes:
        num_parameters: M of the layout.
        skipped: how many entries of each tensor come before its stretch, shape ``(tensors,)``.
        begins: the first index of each stretch, shape ``(tensors,)``.
        sizes: how many entries it has.
        scale: how many entries of the tensor one of them stands for.
    """

    num_parameters: int
    skipped: Integers
    begins: Integers
    sizes: Integers
    scale: Floats
    _offsets: Integers = field(repr=False)
    """The first word of each tensor, and the number of words."""

    @classmethod
    def of(
        cls, sizes: npt.NDArray[np.integer[Any] | np.floating[Any]], positions: int = POSITIONS
    ) -> TensorProbe:
        """The middle of each tensor, in proportion to its size.

        Args:
            sizes: those of the tensors in order, shape ``(tensors,)``.
            positions: entries of all tensors that are looked at, about.
        """
        sizes = sizes.astype(np.int64)
        ends = np.cumsum(sizes)
        share = np.ceil(sizes * min(1.0, positions / int(ends[-1]))).astype(np.int64)
        rows = _ROWS * np.sqrt(sizes).astype(np.int64)
        least = np.clip(rows, _MIN_POSITIONS, _MAX_ROWS_SIZE)
        looked = np.minimum(sizes, np.maximum(share, least))
        skipped = (sizes - looked) // 2
        scale = np.divide(sizes, looked, out=np.zeros(sizes.size), where=looked > 0)
        offsets = np.concatenate([[0], np.cumsum(np.maximum(1, -(-looked // 64)))])
        begins = ends - sizes + skipped
        return cls(int(ends[-1]), skipped, begins, looked, scale, offsets)

    @property
    def tensors(self) -> int:
        """How many tensors there are."""
        return self.sizes.size

    def read(self, packed: PackedSupport) -> ProbedSupport:
        """The part of a support that lies in the stretches, of which alone is read.

        Raises:
            SpaceMismatch: the support is of another number of parameters.
        """
        check_same_space(self.num_parameters, packed.num_parameters)
        if packed.kind == "list":
            indices, tensors = self._of_list(packed.array)
        else:
            indices, tensors = self._of_bitmap(packed)
        places = indices - self.begins[tensors] + 64 * self._offsets[tensors]
        count = 64 * int(self._offsets[-1])
        words = kernels().bitmap(places.astype(index_dtype(count)), count)
        return ProbedSupport(words, self._by_tensor(words))

    def shared(self, one: ProbedSupport, other: ProbedSupport) -> Floats:
        """How many indices both have in the stretch of each tensor, shape ``(tensors,)``."""
        return self._by_tensor(one.words & other.words)

    def bits(self, probed: ProbedSupport, tensor: int) -> npt.NDArray[np.bool_]:
        """Whether each entry of a tensor's stretch is in the support."""
        words = probed.words[self._offsets[tensor] : self._offsets[tensor + 1]]
        bits = np.unpackbits(words.view(np.uint8), bitorder="little", count=self.sizes[tensor])
        return bits.view(np.bool_)

    def _by_tensor(self, words: Words) -> Floats:
        counts = np.bitwise_count(words).astype(np.int64)
        return np.add.reduceat(counts, self._offsets[:-1]).astype(np.float64)

    def _of_list(self, array: npt.NDArray[np.unsignedinteger]) -> tuple[Integers, Integers]:
        lasts = np.maximum(self.begins + self.sizes - 1, 0).astype(array.dtype)
        low = np.searchsorted(array, self.begins.astype(array.dtype), side="left")
        high = np.maximum(low, np.searchsorted(array, lasts, side="right"))
        high[self.sizes == 0] = low[self.sizes == 0]
        parts = [array[a:b] for a, b in zip(low.tolist(), high.tolist(), strict=True)]
        tensors = np.repeat(np.arange(self.tensors), high - low)
        return np.concatenate(parts).astype(np.int64), tensors

    def _of_bitmap(self, packed: PackedSupport) -> tuple[Integers, Integers]:
        first = self.begins >> 6
        count = np.where(self.sizes > 0, ((self.begins + self.sizes - 1) >> 6) - first + 1, 0)
        before = np.cumsum(count) - count
        tensor_of_word = np.repeat(np.arange(self.tensors), count)
        number = np.arange(int(count.sum())) + np.repeat(first - before, count)
        found = kernels().set_bits(packed.array[number].astype(np.uint64), np.dtype(np.uint64))
        places = found.astype(np.int64)
        word = places >> 6
        indices, tensors = (number[word] << 6) + (places & 63), tensor_of_word[word]
        after = indices - self.begins[tensors]
        inside = (after >= 0) & (after < self.sizes[tensors])
        return indices[inside], tensors[inside]
