"""The signature of a tensor: how alike two tensors of one shape are, also where no line is equal.

Noise as large as the weights leaves a line in 500, and still a quarter of the members of its sets.
A signature is a MinHash of all sets of a tensor's rows together: of each of 128 least values it
keeps the lowest byte, so two strangers agree in one byte of 256.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from modelkin.core.codecs.fingerprint import SIGNATURE_BYTES
from modelkin.core.fingerprints.lines import size_of_set
from modelkin.core.kernels.choice import kernels
from modelkin.core.sketching.schemes import permutations

__all__ = ["SIGNATURE_BYTES", "SignatureMaker", "kappa_of", "permutations_of_signatures"]

_SEED: Final = 1
_MOST_VALUES: Final = 1 << 32
"""Values of a tensor that ``affine32`` tells apart."""


class SignatureMaker:
    """The signature of a tensor in the making.

    Args:
        size: the number of its values.
    """

    def __init__(self, size: int) -> None:
        self._least = np.full(SIGNATURE_BYTES, 2**32 - 1, np.uint32)
        self._is_empty = True
        self._fits = size <= _MOST_VALUES

    def take(self, members: npt.NDArray[np.uint64]) -> None:
        """Take the members of sets of rows, in any order.

        Args:
            members: their places among the values of all matrices, these one after the other.
        """
        if members.size and self._fits:
            permuted = permutations_of_signatures()
            self.lower(kernels().minhash32(members.astype(np.uint32), *permuted))

    def lower(self, least: npt.NDArray[np.uint32]) -> None:
        """Take the least value that some members have under each permutation, shape ``(128,)``."""
        if self._fits:
            self._least = np.minimum(self._least, least)
            self._is_empty = False

    def finish(self) -> bytes | None:
        """128 bytes; None of a tensor without sets, or of more than 2^32 values."""
        if self._is_empty:
            return None
        return (self._least & np.uint32(255)).astype(np.uint8).tobytes()


def kappa_of(first: bytes, second: bytes, length: int) -> float:
    """Kappa of two tensors of one shape, with a standard error of .02 near 0 and .05 about .25.

    Args:
        first: the signature of one.
        second: that of the other.
        length: of their rows, which says how much sets share by chance.

    Returns:
        1 for equal sets, and 0 on average for strangers, whose estimates are below 0 as well.
    """
    equal = np.count_nonzero(np.frombuffer(first, np.uint8) == np.frombuffer(second, np.uint8))
    by_chance = 1 / 256
    jaccard = (equal / SIGNATURE_BYTES - by_chance) / (1 - by_chance)
    shared, expected = 2 * jaccard / (1 + jaccard), size_of_set(length) / length
    return float((shared - expected) / (1 - expected))


@lru_cache(maxsize=1)
def permutations_of_signatures() -> tuple[Any, Any]:
    """The factors and offsets of ``affine32``, shape ``(128,)`` each."""
    return permutations("affine32", SIGNATURE_BYTES, _SEED)
