"""Finding keys: the coarse end of a fingerprint's keys, by which others find it.

The sample is nested, so the coarse ends of two fingerprints hold the same part of their common keys
at the coarser of both scales.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from modelkin.core.fingerprints.arrays import kept
from modelkin.core.fingerprints.fingerprint import Fingerprint

__all__ = ["MAX_FINDING_KEYS", "coarse_end"]

MAX_FINDING_KEYS: Final = 1023
"""The most finding keys. Each further doubling of the scale leaves half, so 512 are the least where
a fingerprint has as many."""


def coarse_end(fingerprint: Fingerprint) -> tuple[int, npt.NDArray[np.uint64]]:
    """The least scale that leaves at most 1,023 distinct keys, and these keys, ascending."""
    keys, scale = fingerprint.keys, fingerprint.scale
    keys = keys[np.append(True, keys[1:] != keys[:-1])[: keys.size]]  # each once: they ascend
    while keys.size > MAX_FINDING_KEYS:
        scale *= 2
        keys = keys[: kept(keys, scale)]
    return scale, keys
