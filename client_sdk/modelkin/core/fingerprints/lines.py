"""Lines: the rows and the columns of a tensor's matrices, and their keys.

The *set* of a line has its t largest magnitudes. Before they are compared, each is divided by the
root mean square of its place over all lines, so that the scale of a channel decides nothing; what
gains and foldings change is undone by it. The *key* is made of the first r members that a walk
through all places meets, in an order that is fixed for all matrices. So two lines have one key
with the probability that ``chance`` computes, and neither the tensor, its name nor its orientation
enters.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from modelkin.core.kernels.choice import kernels
from modelkin.core.sketching.schemes import permutations

__all__ = ["Keys", "distinct", "members_of_key", "present", "size_of_set", "walk"]

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Keys:
    """The keys of a matrix's lines of one direction.

    Attributes:
        keys: one for each line, shape ``(lines,)``.
        least: the least scaled magnitude of each set, shape ``(lines,)``; 0 for lines that have no
            set, and so no key: they are zeros, or so many magnitudes are equal that more than 2t
            entries would belong to it.
        scales: what magnitudes at each place are multiplied by, shape ``(length,)``.
    """

    keys: npt.NDArray[np.uint64]
    least: Floats
    scales: Floats

    @property
    def has(self) -> npt.NDArray[np.bool_]:
        """Which lines have a key, shape ``(lines,)``."""
        return self.least > 0


def size_of_set(length: int) -> int:
    """t, the entries of the set of a line: 2% of its length, at least 8."""
    return max(8, (length + 25) // 50)


def members_of_key(length: int) -> int:
    """r, the members of a set that make its key: so many that strangers' keys seldom meet.

    Two random lines share a key with a probability of 6e-8 at most, whatever their length.
    """
    for beyond, members in ((1024, 5), (256, 4), (128, 5), (96, 6)):
        if length >= beyond:
            return members
    return 7


@lru_cache(maxsize=8)
def walk(length: int) -> npt.NDArray[np.uint32]:
    """The rank of each place in the walk: ``affine32`` of it, by the permutation of seed 1."""
    a, b = permutations("affine32", 1, 1)
    return np.asarray(kernels().hashes(np.arange(length, dtype=np.uint32), a, b))


def distinct(keys: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The ascending keys, each once: without the sort that numpy's own function takes."""
    is_first = np.ones(keys.size, np.bool_)
    np.not_equal(keys[1:], keys[:-1], out=is_first[1:])
    return keys[is_first]


def present(keys: npt.NDArray[np.uint64], others: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
    """Which of the keys are among others, which are ascending; shape ``(n,)``."""
    if not others.size:
        return np.zeros(keys.size, np.bool_)
    at = np.searchsorted(others, keys)
    at[at == others.size] = 0
    found: npt.NDArray[np.bool_] = others[at] == keys
    return found
