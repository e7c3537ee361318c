"""The one source of everything that members of a round draw alike: splitmix64.

numpy's generators may change their streams between versions (NEP 19); these never do. numpy, numba
and torch give the same bits.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import numpy.typing as npt

from modelkin.core.kernels.choice import kernels
from modelkin.core.kernels.reference.shards import GOLDEN, mix

__all__ = ["Label", "below", "draws", "mix", "stream"]

Wide = npt.NDArray[np.uint64]

_WORD = 2**64


class Label(IntEnum):
    """The first labels of the streams of a roster's seed; a value never changes."""

    ROTATIONS = 1
    """How a partition deals each block of parameters to the shards."""
    KEPT = 2
    """The values that thinning keeps; round, member and shard follow."""
    SEATS = 3
    """The aggregators that hold each shard."""
    RING = 4
    """The order of members on the ring of neighbours."""


def stream(seed: int, *labels: int) -> int:
    """The seed of a stream of its own for some whole numbers: a round, a member, a shard.

    Args:
        seed: 0 to 2^64 - 1.
        labels: 0 or more; their order matters.
    """
    state = seed
    for label in labels:
        state = (state + int(GOLDEN) * (label + 1)) % _WORD
        state = int(mix(np.array([state], np.uint64))[0])
    return state


def draws(seed: int, count: int, first: int = 0) -> Wide:
    """Numbers ``first`` to ``first + count - 1`` of a stream, shape ``(count,)``."""
    drawn: Wide = kernels().draw(seed, first, count)
    return drawn


def below(bits: Wide, bound: int) -> npt.NDArray[np.int64]:
    """Draws from 0 to ``bound - 1``: the high word of a multiplication by a bound below 2^32."""
    return (((bits >> np.uint64(32)) * np.uint64(bound)) >> np.uint64(32)).astype(np.int64)
