"""Valid fingerprints of keys that no file has."""

from __future__ import annotations

import numpy as np

from modelkin.core.fingerprints.fingerprint import Fingerprint
from modelkin.core.fingerprints.tensors import LinesOfTensor

__all__ = ["made_fingerprint"]

LENGTH = 1000
"""The length of the rows of every tensor, which is longer than they are many."""


def made_fingerprint(seed: int, keys: int = 40, *, tensors: int = 2) -> Fingerprint:
    """A valid fingerprint of keys that no file has: as many of each tensor."""
    draw = np.random.default_rng(seed)
    scale, rows = 4, 4 * keys
    found = np.sort(draw.integers(0, 2**64 // scale - 1, keys * tensors, np.uint64))
    owners = draw.permutation(np.repeat(np.arange(tensors, dtype=np.uint32), keys))
    return Fingerprint(
        scale,
        tuple(
            LinesOfTensor((f"t{number}",), (rows, LENGTH), {LENGTH: rows}, None, bytes(128))
            for number in range(tensors)
        ),
        {LENGTH: rows * tensors},
        found,
        owners,
        np.full(found.size, LENGTH, np.uint32),
    )
