"""Gaussian noise from bits that cannot be predicted; or from a seed, for tests.

All bits come from the system (``secrets``), or from SHAKE256 over a seed (FIPS 202). numpy's own
generators are not made to withstand a reader of what they drew.
"""

from __future__ import annotations

import hashlib
import secrets
from typing import Final

import numpy as np
import numpy.typing as npt

from modelkin.errors import InvalidParameter

__all__ = ["Draws"]

Floats = npt.NDArray[np.float64]

_SEED_BYTES: Final = 32
_MANTISSA: Final = 53
_TIE_BITS: Final = 20


class Draws:
    """A source of random numbers.

    Args:
        seed: 0 to 2^256 - 1, for tests: who knows it knows all draws. None for the system's bits.

    Raises:
        InvalidParameter: the seed is not such an integer.
    """

    def __init__(self, seed: int | None = None) -> None:
        if seed is not None and (
            isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 1 << 256
        ):
            raise InvalidParameter(f"seed must be 0 to 2^256 - 1, not {seed!r}", field="seed")
        self._seed = seed
        self._drawn = 0

    def gaussian(self, size: int, sigma: float) -> Floats:
        """Normal numbers of mean 0, by Box and Muller's transform of 53-bit uniform numbers.

        Args:
            size: how many.
            sigma: their standard deviation. None is beyond 8.6 of it.
        """
        half = (size + 1) // 2
        words = self._words(2 * half) >> np.uint64(64 - _MANTISSA)
        uniform = words.astype(np.float64) * 2.0**-_MANTISSA
        radius = sigma * np.sqrt(-2.0 * np.log1p(-uniform[:half]))
        angle = 2.0 * np.pi * uniform[half:]
        return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:size]

    def tie_breaks(self, size: int) -> Floats:
        """Uniform multiples of 2^-20 in [0, 1), which leave sums with integers exact."""
        words = self._words(size) >> np.uint64(64 - _TIE_BITS)
        return words.astype(np.float64) * 2.0**-_TIE_BITS

    def _words(self, count: int) -> npt.NDArray[np.uint64]:
        self._drawn += 1
        if self._seed is None:
            drawn = secrets.token_bytes(8 * count)
        else:
            key = self._seed.to_bytes(_SEED_BYTES, "big") + self._drawn.to_bytes(8, "big")
            drawn = hashlib.shake_256(b"modelkin privacy" + key).digest(8 * count)
        return np.frombuffer(drawn, "<u8").astype(np.uint64, copy=False)
