"""32-bit fixed point: values as words whose sum modulo 2^32 is exact, so that masks cancel in it.

Source: Bonawitz et al., "Practical secure aggregation for privacy-preserving machine learning",
2017.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from modelkin.errors import InvalidParameter
from modelkin.federation.shards.plan import CHECK_WORDS

__all__ = ["FixedPoint", "least_power"]

_STEP = 1 << 15

Words = npt.NDArray[np.uint32]


def least_power(peak: float) -> float:
    """The least power of two that is a value or more, for ``peak`` of a concealed round.

        peak = least_power(max(member.peak(update) for member, update in ...))
        current = Round(1, weights, peak=peak)

    Args:
        peak: the largest magnitude that any member would send (``Member.peak``).

    Returns:
        2^-64 to 2^63; 2^-64 also for zero and for all values below.

    Raises:
        InvalidParameter: the value is negative, NaN, infinite, or above 2^63.
    """
    if not 0 <= peak <= 2.0**63:
        message = f"the largest value must be 0 to 2^63, not {peak!r}"
        raise InvalidParameter(message, field="peak")
    if peak <= 2.0**-64:
        return 2.0**-64
    share, exponent = math.frexp(peak)  # exact, where log2 rounds; 0.5 <= share < 1
    return math.ldexp(1.0, exponent - (share == 0.5))


@dataclass(frozen=True, slots=True)
class FixedPoint:
    """Numbers from -R to R as whole multiples of ``2^-F``, modulo 2^32; ``F = 30 - log2 R``.

    Shares sum to 1, so no sum of encoded terms leaves the range: half of all words lie beyond it,
    and no honest sum does.

    Args:
        peak: R, a power of two.
    """

    peak: float

    def __post_init__(self) -> None:
        if self.peak != least_power(self.peak):
            message = f"R must be a power of two from 2^-64 to 2^63, not {self.peak!r}"
            raise InvalidParameter(message, field="peak")

    @property
    def unit(self) -> float:
        """``2^-F``: the error of a sum is half of it for each term, at most."""
        return self.peak * 2.0**-30

    def encode(self, values: npt.NDArray[np.float32], share: float) -> Words:
        """Encode a member's share of its values, with the check words at the end.

        Args:
            values: shape ``(size,)``; what lies beyond R is clipped.
            share: the member's weight by the sum of all, 0 to 1.

        Returns:
            Shape ``(size + CHECK_WORDS,)``.
        """
        words = np.zeros(values.size + CHECK_WORDS, np.uint32)
        for at in range(0, values.size, _STEP):
            part = np.clip(values[at : at + _STEP].astype(np.float64), -self.peak, self.peak)
            steps = np.rint(part * share / self.unit).astype(np.int64)
            words[at : at + part.size] = steps.astype(np.uint32)
        return words

    def decode(self, total: Words, terms: int) -> npt.NDArray[np.float32] | None:
        """Decode a sum of cells, shape ``(size,)``; None if it is not one of ``terms`` cells.

        Args:
            total: the sum of all cells, modulo 2^32, shape ``(size + CHECK_WORDS,)``.
            terms: how many cells; each may have been rounded up by half a unit.
        """
        if total[-CHECK_WORDS:].any():
            return None
        values = np.empty(total.size - CHECK_WORDS, np.float32)
        most = 2**30 + (terms + 1) // 2
        for at in range(0, values.size, _STEP):
            steps = total[at : min(at + _STEP, values.size)].view(np.int32)
            if int(steps.max()) > most or int(steps.min()) < -most:
                return None
            values[at : at + _STEP] = steps.astype(np.float64) * self.unit
        return values
