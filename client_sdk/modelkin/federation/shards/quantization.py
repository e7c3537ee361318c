"""QSGD to int8: unbiased random rounding, one scale for each 512 values.

Source: Alistarh et al., "QSGD: communication-efficient SGD via gradient quantization", 2017, with
the largest value of a bucket as its norm.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from modelkin.federation.shards.draws import draws
from modelkin.wire.cell import BUCKET, num_buckets

__all__ = ["BUCKET", "LEVELS", "OMEGA", "Quantized", "num_buckets", "quantize"]

LEVELS = 127
"""Steps from zero to a scale."""

OMEGA = 1.1e-4
"""The variance that rounding adds, in squares of the rounded values: measured on normal values."""

_STEP = 1 << 16
_UNIT = np.float32(2.0**-24)

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class Quantized:
    """Values as steps of their bucket's scale.

    Attributes:
        codes: -127 to 127, int8, shape ``(n,)``.
        scales: the largest magnitude of each bucket, float32, shape ``(num_buckets(n),)``.
    """

    codes: npt.NDArray[np.int8]
    scales: Floats

    def values(self) -> Floats:
        """The rounded values, shape ``(n,)``."""
        steps = np.repeat(self.scales / np.float32(LEVELS), BUCKET)[: self.codes.size]
        rounded: Floats = self.codes.astype(np.float32) * steps
        return rounded


def quantize(values: Floats, seed: int) -> Quantized:
    """Round values at random to one of the two nearest steps, so that their mean is right.

    Args:
        values: finite float32, shape ``(n,)``.
        seed: the seed of the draws; the member's own, which no other party learns.
    """
    codes = np.empty(values.size, np.int8)
    scales = np.empty(num_buckets(values.size), np.float32)
    for at in range(0, values.size, _STEP):
        part = values[at : at + _STEP]
        largest = np.maximum.reduceat(np.abs(part), np.arange(0, part.size, BUCKET))
        scales[at // BUCKET : at // BUCKET + largest.size] = largest
        divisor = np.repeat(np.where(largest > 0, largest, np.float32(1)), BUCKET)[: part.size]
        # Divided before multiplied: a scale may be so small that 127 divided by it overflows.
        steps = part / divisor * np.float32(LEVELS)
        chance = (draws(seed, part.size, at) >> np.uint64(40)).astype(np.float32) * _UNIT
        low = np.floor(steps)
        codes[at : at + _STEP] = (low + (chance < steps - low)).astype(np.int8)
    return Quantized(codes, scales)
