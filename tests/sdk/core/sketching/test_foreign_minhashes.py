"""from_datasketch takes what is of indices, and refuses everything else by its name."""

from __future__ import annotations

import hashlib
from typing import Any

import datasketch
import numpy as np
import pytest
from datasketch.hashfunc import sha1_hash32

from modelkin import Signature, Support
from modelkin.errors import InvalidSignature

SUPPORT = Support.from_indices([3, 5, 8, 300, 999], 1000)


def of_texts(**options: Any) -> datasketch.MinHash:
    """The MinHash of the page of datasketch: of the text of each index."""
    made = datasketch.MinHash(num_perm=64, scheme="affine32", **options)
    for index in SUPPORT.indices.tolist():
        made.update(str(index).encode())
    return made


def of_bytes() -> datasketch.MinHash:
    """Of the eight bytes of each index, by another hash."""
    made = datasketch.MinHash(
        num_perm=64,
        scheme="affine64",
        hashfunc=lambda data: int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "big"),
    )
    made.update_batch([index.to_bytes(8, "little") for index in SUPPORT.indices.tolist()])
    return made


def of_other_integers() -> datasketch.MinHash:
    """Of the hashes of indices, by a hash function of integers."""
    made = datasketch.MinHash(
        num_perm=64, scheme="affine32", hashfunc=lambda i: i * 2_654_435_761 % 2**32
    )
    made.update_batch(SUPPORT.indices.tolist())
    return made


def lean(made: datasketch.MinHash) -> Any:
    return datasketch.LeanMinHash(made)


def empty() -> datasketch.MinHash:
    return datasketch.MinHash(num_perm=64, scheme="affine32", hashfunc=lambda i: i)


def weighted() -> Any:
    return datasketch.WeightedMinHashGenerator(10, sample_size=64).minhash(np.arange(10.0))


FOREIGN = {
    "texts": (of_texts, "this MinHash is of hashes of what it was given"),
    "bytes": (of_bytes, "this MinHash is of hashes of what it was given"),
    "integers": (of_other_integers, "this MinHash is of hashes of what it was given"),
    "lean texts": (lambda: lean(of_texts()), "64 of 64 values of this LeanMinHash are of no index"),
    "lean bytes": (lambda: lean(of_bytes()), "64 of 64 values of this LeanMinHash are of no index"),
    "lean integers": (lambda: lean(of_other_integers()), "values of this LeanMinHash are of no in"),
    "empty": (empty, "values of this MinHash are of no index below 1000, .* or empty"),
    "weighted": (weighted, "a WeightedMinHash is of weighted elements"),
    "values": (lambda: of_texts().hashvalues, r"not its values \(ndarray\): .*from_values takes"),
    "a list": (lambda: [1, 2, 3], r"not its values \(list\)"),
    "b-bit": (lambda: datasketch.bBitMinHash(of_texts()), "not a bBitMinHash"),
    "a count": (lambda: datasketch.HyperLogLog(), "wanted, not a HyperLogLog"),
    "nothing": (lambda: None, "wanted, not a NoneType"),
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_what_is_not_of_indices_is_refused(kind: str) -> None:
    """The refusal says what it is, and how a MinHash of indices is made."""
    make, message = FOREIGN[kind]
    with pytest.raises(InvalidSignature, match=message):
        Signature.from_datasketch(make(), num_parameters=1000, support_size=5)


@pytest.mark.parametrize("scheme", ["affine32", "affine64"])
@pytest.mark.parametrize("form", [lambda made: made, lean], ids=["plain", "lean"])
@pytest.mark.parametrize("hashed", [lambda i: i, int, np.uint64])
def test_what_is_of_indices_is_taken(scheme: str, form: Any, hashed: Any) -> None:
    """Any identity will do, plain or lean, in each scheme and seed, up to the last index."""
    made = datasketch.MinHash(num_perm=64, seed=9, scheme=scheme, hashfunc=hashed)
    made.update_batch(SUPPORT.indices.tolist())
    brought = Signature.from_datasketch(form(made), num_parameters=1000, support_size=5)
    assert SUPPORT.signature(num_perm=64, seed=9, scheme=scheme) == brought


def test_the_default_hash_is_named_as_such() -> None:
    """datasketch's own default is the most common one."""
    with pytest.raises(InvalidSignature, match=r"hashfunc=lambda i: i"):
        Signature.from_datasketch(
            of_texts(hashfunc=sha1_hash32), num_parameters=1000, support_size=5
        )
