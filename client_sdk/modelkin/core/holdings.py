"""``Probe``: the indices of a target that other supports are asked for, and who holds which.

What a support holds is one bit an index of the target, however large the space is. It never says
what holding an index is worth: that is ``rarity``'s, and ``cover``'s.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from modelkin.core.kernels.choice import kernels
from modelkin.core.packed import PackedSupport, check_same_space
from modelkin.core.support import IndexArray, Support

__all__ = ["MOST_INDICES", "Probe"]

Words = npt.NDArray[np.uint64]

MOST_INDICES = 1 << 17
"""Indices asked for at most. Of a larger target it is an even sample, whose shares are right within
a standard error of 0.0014.
"""


@dataclass(frozen=True, slots=True)
class Probe:
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
    def of(cls, target: Support, most: int = MOST_INDICES) -> Probe:
        """All indices of a target, or ``most`` of them at equal distances in their order."""
        indices = target.indices
        if target.k > most:
            indices = indices[np.arange(most, dtype=np.int64) * target.k // most]
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
