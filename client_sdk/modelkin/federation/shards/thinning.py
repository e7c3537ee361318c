"""``Thinning``: one value in c is sent, and no index: both sides draw the places.

Of each block of c consecutive positions one is kept, its place drawn. Scaled by c the kept values
are an unbiased estimate of all of them, of variance ``c - 1`` times their squares.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from modelkin.core.kernels.choice import kernels
from modelkin.federation.shards.draws import below, draws
from modelkin.federation.shards.quantization import OMEGA as QUANTIZATION_OMEGA

__all__ = ["Thinning", "omega"]

Floats = npt.NDArray[np.float32]


def omega(one_in: int, *, quantized: bool = False) -> float:
    """The variance that compression adds, in squares of what is compressed: ``E|C(x) - x|^2``.

    Args:
        one_in: c.
        quantized: whether what is kept is rounded to int8 too; the two compose.
    """
    return one_in * (1 + (QUANTIZATION_OMEGA if quantized else 0.0)) - 1.0


@dataclass(frozen=True, slots=True)
class Thinning:
    """The draw of the positions that are kept, among consecutive ones.

    Args:
        size: how many positions there are.
        one_in: c, 1 or more.
        seed: 0 to 2^64 - 1; parties with the same seed keep the same positions.
        first_block: the number of the first block of c positions, from 0.
    """

    size: int
    one_in: int
    seed: int
    first_block: int = 0

    @property
    def count(self) -> int:
        """How many positions are kept: one of each whole block, and perhaps of a short last one."""
        whole, rest = divmod(self.size, self.one_in)
        if not rest:
            return whole
        last = below(draws(self.seed, 1, self.first_block + whole), self.one_in)
        return whole + int(last[0] < rest)

    @property
    def positions(self) -> npt.NDArray[np.int64]:
        """The positions that are kept, ascending, shape ``(count,)``."""
        if self.one_in == 1:
            return np.arange(self.size)
        count = self.count
        places = below(draws(self.seed, count, self.first_block), self.one_in)
        return np.arange(count) * self.one_in + places

    def take(self, values: Floats) -> Floats:
        """Take the kept values out of values of shape ``(size,)``, unscaled, shape ``(count,)``."""
        if self.one_in == 1:
            return values
        words = np.ascontiguousarray(values, np.float32).view(np.uint32)
        kept: npt.NDArray[np.uint32] = kernels().take_one_in(
            words, self.seed, self.first_block, self.one_in, self.count
        )
        return kept.view(np.float32)

    def spread(self, kept: Floats) -> Floats:
        """The inverse of :meth:`take`, with zeros for what is not kept, shape ``(size,)``."""
        if self.one_in == 1:
            return kept
        values = np.zeros(self.size, np.float32)
        values[self.positions] = kept
        return values
