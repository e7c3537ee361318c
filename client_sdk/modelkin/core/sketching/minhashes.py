"""MinHashes of datasketch: whether one is of indices, as a signature is."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from modelkin.core.sketching.schemes import check_scheme, preimages
from modelkin.errors import InvalidSignature

__all__ = ["check_minhash"]

_ASKED: Final = 12345
"""An index that a hash function is asked for: no hash but the identity returns it."""

_AGAIN: Final = (
    "make it of the indices themselves, with "
    "MinHash(num_perm=h, seed=s, scheme='affine32', hashfunc=lambda i: i)"
)


def check_minhash(minhash: Any, num_parameters: int) -> None:
    """Check that an object is a MinHash, or LeanMinHash, of indices below M.

    A MinHash is asked for its hash function. A LeanMinHash has none, but the permutations can be
    inverted: each value leads back to one index, which is below M.

    Raises:
        InvalidSignature: the object is of another kind, of datasketch 1.x's scheme, or of something
            else than indices; says which.
    """
    kind = type(minhash).__name__
    values = getattr(minhash, "hashvalues", None)
    if not isinstance(values, np.ndarray) or values.ndim != 1 or not hasattr(minhash, "digest"):
        raise InvalidSignature(_other_kind(minhash), field="minhash")
    scheme = check_scheme(getattr(minhash, "scheme", "legacy"), num_parameters)
    hashed = getattr(minhash, "hashfunc", None)
    if hashed is not None and not _is_identity(hashed):
        raise InvalidSignature(
            f"this {kind} is of hashes of what it was given, and a signature is of indices: "
            f"{_AGAIN}",
            field="minhash",
        )
    found = preimages(values, scheme, minhash.seed)
    beyond = sum(index >= num_parameters for index in found)
    if beyond:
        raise InvalidSignature(
            f"{beyond} of {values.size} values of this {kind} are of no index below "
            f"{num_parameters}, so it is of something else, or of hashes, or empty: {_AGAIN}",
            field="minhash",
        )


def _is_identity(hashed: Any) -> bool:
    try:
        return bool(hashed(_ASKED) == _ASKED)
    except Exception:  # a hash of bytes refuses an integer, each in its own way
        return False


def _other_kind(given: Any) -> str:
    kind = type(given).__name__
    if kind == "WeightedMinHash":
        return (
            f"a {kind} is of weighted elements, and estimates another similarity than a "
            f"signature's: {_AGAIN}"
        )
    if isinstance(given, (np.ndarray, list, tuple)):
        return (
            f"a MinHash is wanted, not its values ({kind}): modelkin.Signature.from_values takes "
            f"these, with their scheme and seed"
        )
    return f"a datasketch.MinHash or LeanMinHash is wanted, not a {kind}: {_AGAIN}"
