"""The schemes of signatures: their names, the width of their values, and their limits.

``affine32`` and ``affine64`` are classic MinHash with the permutations of datasketch 2.x.
"""

from __future__ import annotations

import operator
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from modelkin.errors import InvalidSignature

__all__ = [
    "MAX_NUM_PERM",
    "MAX_SEED",
    "SCHEMES",
    "ValueArray",
    "check_permutations",
    "check_scheme",
    "check_integer",
    "default_scheme",
    "permutations",
    "preimages",
    "value_dtype",
]

ValueArray = npt.NDArray[np.uint32] | npt.NDArray[np.uint64]

SCHEMES: dict[str, int] = {"affine32": 32, "affine64": 64}
"""The bits of a value, by scheme."""

_MIXES = {
    32: ((0x85EBCA6B, 0xC2B2AE35), (16, 13, 16)),
    64: ((0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53), (33, 33, 33)),
}
"""The multipliers and shifts that mix an index before it is permuted, as fmix of MurmurHash3."""

MAX_NUM_PERM = 4096
"""The largest h: a standard error of 0.008 at worst, and 32 KiB a model."""

MAX_SEED = 2**32 - 1
"""The largest seed that numpy's ``RandomState`` takes."""


def default_scheme(num_parameters: int) -> str:
    """``affine32`` up to M = 2^32, ``affine64`` beyond, where indices no longer fit 32 bits."""
    return "affine32" if num_parameters <= 2**32 else "affine64"


def value_dtype(scheme: str) -> np.dtype[np.uint32] | np.dtype[np.uint64]:
    """uint32 for ``affine32``, uint64 for ``affine64``.

    Raises:
        InvalidSignature: not a known scheme.
    """
    return np.dtype(np.uint32) if SCHEMES[check_scheme(scheme)] == 32 else np.dtype(np.uint64)


@lru_cache(maxsize=64)
def permutations(scheme: str, num_perm: int, seed: int) -> tuple[ValueArray, ValueArray]:
    """The h odd factors and h offsets of an affine scheme, as datasketch 2.x draws them.

    Returns:
        Two read-only arrays of shape ``(num_perm,)`` and the dtype of the values.
    """
    kind, width = value_dtype(scheme).type, SCHEMES[scheme]
    generator = np.random.RandomState(seed)
    a = generator.randint(0, 1 << (width - 1), num_perm, dtype=kind) * kind(2) + kind(1)
    b = generator.randint(0, 1 << width, num_perm, dtype=kind)
    a.flags.writeable = b.flags.writeable = False
    return a, b


def preimages(values: ValueArray, scheme: str, seed: int) -> list[int]:
    """The index that each permutation of a scheme takes to its value, as a signature has them."""
    multipliers, shifts = _MIXES[SCHEMES[scheme]]
    size = 1 << SCHEMES[scheme]
    a, b = permutations(scheme, values.size, seed)
    found = []
    for value, factor, offset in zip(values.tolist(), a.tolist(), b.tolist(), strict=True):
        x = (value - offset) * pow(factor, -1, size) % size
        for shift, multiplier in zip(shifts, (1, *reversed(multipliers)), strict=True):
            x = x * pow(multiplier, -1, size) % size
            x ^= x >> shift ^ x >> 2 * shift
        found.append(x)
    return found


def check_scheme(scheme: Any, num_parameters: int = 1) -> str:
    """Check that a scheme is known and fits M, and return it; else raise :class:`InvalidSignature`.

    Args:
        scheme: as requested.
        num_parameters: M; up to 2^32 for all but ``affine64``.
    """
    if scheme == "legacy":
        raise InvalidSignature(
            "datasketch 1.x's scheme 'legacy' is biased on large sets and not supported; make the "
            "signature again with datasketch 2.x: "
            "MinHash(num_perm=h, seed=s, scheme='affine32', hashfunc=lambda i: i)",
            field="scheme",
        )
    if not isinstance(scheme, str) or scheme not in SCHEMES:
        raise InvalidSignature(
            f"scheme must be {' or '.join(SCHEMES)}, not {scheme!r}", field="scheme"
        )
    if SCHEMES[scheme] == 32 and num_parameters > 2**32:
        raise InvalidSignature(
            f"{scheme} permutes 32-bit indices, {num_parameters} parameters need affine64",
            field="scheme",
        )
    return scheme


def check_permutations(
    num_parameters: int, num_perm: Any, seed: Any, scheme: Any = None
) -> tuple[str, int, int]:
    """The scheme (the default one for M where None), h and the seed, checked as
    ``Signature.of`` describes.
    """
    scheme = default_scheme(num_parameters) if scheme is None else scheme
    return (
        check_scheme(scheme, num_parameters),
        check_integer(num_perm, "num_perm", 1, MAX_NUM_PERM),
        check_integer(seed, "seed", 0, MAX_SEED),
    )


def check_integer(value: Any, name: str, minimum: int, maximum: int) -> int:
    """Return a value that is an int in its range; else raise :class:`InvalidSignature`."""
    try:
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(value)
    except TypeError:
        raise InvalidSignature(f"{name} must be an integer, not {value!r}", field=name) from None
    if not minimum <= number <= maximum:
        raise InvalidSignature(f"{name} must be {minimum} to {maximum}, not {number}", field=name)
    return number
