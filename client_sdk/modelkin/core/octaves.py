"""Octaves: the rank of each index of a support by importance, to a factor of two.

Rank r, from 1 for the most important index, has octave ``floor(log2(r))``: one index has octave 0,
two have octave 1, four have octave 2. The last octave has what is left of K. So K alone says how
many indices each octave has, and an order of K indices is a vector of K such numbers.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from modelkin.core.indices import as_integers
from modelkin.errors import InvalidSupport

__all__ = [
    "Octaves",
    "check_octaves",
    "last_octave",
    "octave_sizes",
    "octaves_of_bits",
    "require_octaves",
]

Octaves = npt.NDArray[np.uint8]

_BLOCK_SIZE: Final = 1 << 16
"""Octaves that are counted at a time: numpy widens them to eight bytes each."""


def last_octave(k: int) -> int:
    """The octave of rank K, ``floor(log2(K))`` in exact integers."""
    return k.bit_length() - 1


def octave_sizes(k: int) -> npt.NDArray[np.int64]:
    """How many of the ranks 1 to K each octave has, from octave 0 on."""
    sizes = np.int64(1) << np.arange(last_octave(k) + 1, dtype=np.int64)
    sizes[-1] = k - (int(sizes[-1]) - 1)
    return sizes


def octaves_of_bits(bits: npt.NDArray[np.uint32]) -> Octaves:
    """The octaves of entries by falling value, ties to the earlier entry.

    Args:
        bits: the bits of K positive float32, which order like the floats, shape ``(K,)``, K at
            least 1.
    """
    sizes = octave_sizes(bits.size)
    octaves = np.empty(bits.size, np.uint8)
    falling = np.argsort(~bits, kind="stable")
    octaves[falling] = np.repeat(np.arange(sizes.size, dtype=np.uint8), sizes)
    return octaves


def check_octaves(octaves: Any, k: int) -> Octaves:
    """Copy K octaves from any integers; raises what :func:`require_octaves` does."""
    array = as_integers(octaves, "octaves")
    require_octaves(array, k)
    return array.astype(np.uint8)


def require_octaves(octaves: npt.NDArray[np.integer[Any]], k: int) -> None:
    """Require that K numbers are the octaves of the ranks 1 to K in some order.

    Raises:
        InvalidSupport: there are more or fewer, one is beyond the last octave, or an octave has
            another number of indices than ranks give it.
    """
    if octaves.shape != (k,):
        raise InvalidSupport(
            f"each of the {k} indices has one octave, and octaves have shape {octaves.shape}",
            field="octaves",
        )
    last, sizes = last_octave(k), octave_sizes(k)
    beyond = (octaves < 0) | (octaves > last)
    if beyond.any():
        at = int(np.argmax(beyond))
        raise InvalidSupport(
            f"octaves[{at}] = {octaves[at]} is out of range: the ranks of {k} indices have octaves "
            f"0 to {last}",
            field="octaves",
        )
    counts = np.zeros(last + 1, np.int64)
    for at in range(0, k, _BLOCK_SIZE):
        block = octaves[at : at + _BLOCK_SIZE].astype(np.uint8)
        counts += np.bincount(block, minlength=last + 1)
    wrong = np.flatnonzero(counts != sizes)
    if wrong.size:
        octave = int(wrong[0])
        raise InvalidSupport(
            f"{counts[octave]} indices have octave {octave}, and {sizes[octave]} of {k} ranks do: "
            f"rank r from 1 has octave floor(log2(r))",
            field="octaves",
        )
