"""Signatures: datasketch's bits, honest estimates, strict values."""

from __future__ import annotations

import math
import sys
from types import ModuleType
from typing import Any

import datasketch
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelkin.core.estimators import jaccard_error
from modelkin.core.sketching.schemes import default_scheme, permutations, value_dtype
from modelkin.core.sketching.signature import Signature, jaccard_estimates
from modelkin.core.support import Support
from modelkin.errors import InvalidParameter, InvalidSignature, MissingExtra, SpaceMismatch
from tests.support.signatures import value_rows

SMALL = Support.from_indices([3, 5, 8, 300, 999], 1000)


def minhash(indices: Any, scheme: str, num_perm: int = 64, seed: int = 1) -> datasketch.MinHash:
    """The signature by datasketch alone, fed Python integers."""
    made = datasketch.MinHash(num_perm=num_perm, seed=seed, scheme=scheme, hashfunc=lambda i: i)
    made.update_batch([int(i) for i in indices])
    return made


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scheme", "m"),
    [("affine32", 1000), ("affine32", 2**32), ("affine64", 1000), ("affine64", 2**32 + 1),
     ("affine64", 2**63 - 1)],
)  # fmt: skip
@given(data=st.data())
def test_bits_are_datasketchs(
    each_kernels: ModuleType, scheme: str, m: int, data: st.DataObject
) -> None:
    """Any support, scheme, h and seed gives the very hash values that datasketch gives."""
    indices = sorted(data.draw(st.sets(st.integers(0, m - 1), min_size=1, max_size=30)))
    h, seed = data.draw(st.integers(1, 70)), data.draw(st.integers(0, 2**32 - 1))
    signature = Support.from_indices(indices, m).signature(h, seed, scheme)
    expected = minhash(indices, scheme, h, seed).hashvalues
    assert (expected.dtype, expected.tolist()) == (
        signature.values.dtype,
        signature.values.tolist(),
    )


def test_values_are_golden() -> None:
    """These values of a small support are constants: others mean another scheme."""
    narrow = SMALL.signature(num_perm=4)
    wide = SMALL.signature(num_perm=4, scheme="affine64")
    assert [63217260, 881502918, 1170697243, 1295323584] == narrow.values.tolist()
    assert [
        46081346186808835, 1338387844915875119, 2628871119881528766, 1556013851891681478
    ] == wide.values.tolist()  # fmt: skip


def test_round_trip_through_datasketch() -> None:
    """A signature becomes a MinHash that equals datasketch's own, and comes back from it."""
    made = minhash(SMALL.indices, "affine32", num_perm=256)
    signature = Signature.from_datasketch(made, num_parameters=1000, support_size=5)
    assert SMALL.signature() == signature
    assert made == signature.to_datasketch()
    assert signature.to_datasketch().jaccard(made) == signature.jaccard(signature) == 1.0


def test_datasketch_keeps_counting_where_we_stopped() -> None:
    """The MinHash has the identity for a hash, so that updating it goes on as ours would."""
    made = SMALL.signature(num_perm=16).to_datasketch()
    made.update(7)
    grown = Support.from_indices([3, 5, 7, 8, 300, 999], 1000).signature(num_perm=16)
    assert grown.values.tolist() == made.hashvalues.tolist()


def test_legacy_minhashes_are_refused() -> None:
    """A signature of datasketch 1.x is refused with what to do instead."""
    made = datasketch.MinHash(num_perm=8, scheme="legacy", hashfunc=lambda i: i)
    with pytest.raises(InvalidSignature, match=r"again with datasketch 2\.x"):
        Signature.from_datasketch(made, num_parameters=10, support_size=1)


def test_without_datasketch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where datasketch is not installed the error says what to install."""
    monkeypatch.setitem(sys.modules, "datasketch", None)
    with pytest.raises(MissingExtra, match=r"pip install 'modelkin\[datasketch\]'"):
        SMALL.signature().to_datasketch()


@given(cuts=st.lists(st.integers(0, 50), max_size=3))
def test_merge_is_the_signature_of_the_union(cuts: list[int]) -> None:
    """However a support is cut into disjoint shards, their merge is the whole's signature."""
    indices = np.arange(0, 1000, 19)
    parts = [p for p in np.split(indices, sorted(cuts)) if p.size]
    shards = [Support.from_indices(p, 1000).signature(num_perm=32) for p in parts]
    assert Support.from_indices(indices, 1000).signature(num_perm=32) == shards[0].merge(
        *shards[1:]
    )


def test_merge_refuses_shards_that_must_overlap() -> None:
    """Shards with more indices together than there are parameters cannot be disjoint."""
    half = Signature.from_values([1], num_parameters=10, support_size=6)
    with pytest.raises(InvalidSignature, match="12 indices together, more than 10"):
        half.merge(half)


def test_estimates_keep_to_their_error() -> None:
    """Over 300 seeds the estimates of one pair have the mean J and the variance J(1-J)/h."""
    a, b = (Support.from_indices(range(s, s + 400), 1000) for s in (0, 200))
    pairs = [(a.signature(64, seed), b.signature(64, seed)) for seed in range(300)]
    estimates = np.array([x.jaccard(y) for x, y in pairs])
    error = jaccard_error(1 / 3, 64)
    assert abs(estimates.mean() - 1 / 3) < 4 * error / math.sqrt(300)
    assert 0.8 < estimates.std() / error < 1.2


def test_similarity_follows_from_jaccard() -> None:
    """S is 2J/(1+J), and its error at S = 0.7 and h = 256 is the 0.026 that the paper's h gives."""
    values = np.arange(256)
    near = np.where(values < 138, values, values + 1000)
    a, b = (Signature.from_values(v, num_parameters=9, support_size=3) for v in (values, near))
    j = 138 / 256
    assert (j, 2 * j / (1 + j)) == (a.jaccard(b), a.similarity(b))
    assert math.sqrt(j * (1 - j) / 256) == a.jaccard_error(b)
    assert 0.026 == round(a.standard_error(b), 3)


def test_estimates_of_many() -> None:
    """The vectorised estimates are those of each pair."""
    supports = [Support.from_indices(range(s, s + 50), 1000) for s in range(0, 60, 20)]
    signatures = [support.signature() for support in supports]
    expected = [signature.jaccard(signatures[0]) for signature in signatures]
    rows = value_rows(signatures)
    assert expected == jaccard_estimates(rows, signatures[0].values).tolist()


@pytest.mark.parametrize(
    ("other", "name"),
    [
        (SMALL.signature(8, 2), "seed"),
        (SMALL.signature(9, 1), "num_perm"),
        (SMALL.signature(8, 1, "affine64"), "scheme"),
        (Support.from_indices([1], 1001).signature(8), "num_parameters"),
    ],
)
def test_different_kinds_are_never_compared(other: Signature, name: str) -> None:
    """Another scheme, h, seed or M is an error that names it, not a low similarity."""
    with pytest.raises(SpaceMismatch, match=f"different {name} "):
        SMALL.signature(8).jaccard(other)
    with pytest.raises(SpaceMismatch, match=f"different {name} "):
        SMALL.signature(8).merge(other)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"values": []}, "values"),
        ({"values": [1] * 4097}, "values"),
        ({"values": 7}, "values"),
        ({"values": [1, 2**32]}, "values[1]"),
        ({"values": [1, -1]}, "values[1]"),
        ({"values": [True]}, "values[0]"),
        ({"values": [1.0]}, "values[0]"),
        ({"values": ["1"]}, "values[0]"),
        ({"values": [None]}, "values[0]"),
        ({"values": "12"}, "values[0]"),
        ({"values": np.array([1.0])}, "values"),
        ({"values": np.array([[1]])}, "values"),
        ({"values": np.array([-1])}, "values"),
        ({"values": np.array([2**32])}, "values"),
        ({"support_size": 0}, "support_size"),
        ({"support_size": 11}, "support_size"),
        ({"support_size": 1.0}, "support_size"),
        ({"seed": -1}, "seed"),
        ({"seed": 2**32}, "seed"),
        ({"seed": True}, "seed"),
        ({"scheme": "legacy"}, "scheme"),
        ({"scheme": "md5"}, "scheme"),
        ({"scheme": ["affine32"]}, "scheme"),
        ({"num_parameters": 2**32 + 1}, "scheme"),
    ],
)
def test_untrusted_values_are_checked(changes: dict[str, Any], field: str) -> None:
    """Whatever is out of range or of another type is refused, naming the field."""
    sound = {"values": [1, 2], "num_parameters": 10, "support_size": 5}
    with pytest.raises(InvalidSignature) as caught:
        Signature.from_values(**{**sound, **changes})
    assert field == caught.value.field


@pytest.mark.parametrize("values", [[0, 2**64 - 1], np.array([0, 2**64 - 1], np.uint64)])
def test_wide_values_are_kept(values: Any) -> None:
    """affine64 takes the whole range of 64 bits, from lists and from arrays."""
    made = Signature.from_values(values, num_parameters=9, support_size=1, scheme="affine64")
    assert [0, 2**64 - 1] == made.values.tolist()


@pytest.mark.parametrize(
    "arguments", [{"num_perm": 0}, {"num_perm": 4097}, {"seed": -1}, {"scheme": "fss"}]
)
def test_arguments_of_a_signature(arguments: dict[str, Any]) -> None:
    """h, seed and scheme out of their ranges are refused when a signature is made, too."""
    with pytest.raises(InvalidSignature):
        SMALL.signature(**arguments)


def test_affine32_ends_at_32_bits() -> None:
    """Beyond 2^32 parameters affine64 is the default, and affine32 an error that says why."""
    large = Support.from_indices([2**32], 2**32 + 1)
    assert ("affine32", "affine64") == (default_scheme(2**32), default_scheme(2**32 + 1))
    assert "affine64" == large.signature().scheme
    with pytest.raises(InvalidSignature, match="affine32 permutes 32-bit indices"):
        large.signature(scheme="affine32")


def test_m_is_checked() -> None:
    """An impossible M is an error of its own name."""
    with pytest.raises(InvalidParameter, match="num_parameters"):
        Signature.from_values([1], num_parameters=0, support_size=1)


def test_value_semantics() -> None:
    """Equal signatures are one key of a dict; nothing of them can be changed."""
    a, b = SMALL.signature(8), SMALL.signature(8)
    assert {a: 1} == {b: 1}
    assert a != SMALL.signature(8, 2)
    assert a != "signature"
    assert not a.values.flags.writeable
    assert "<Signature affine32 of 8 permutations, 5 of 1,000 parameters>" == repr(a)


def test_parameters_are_odd_shared_and_read_only() -> None:
    """The factors are odd, of the values' dtype, drawn once and safe from writers."""
    a, b = permutations("affine64", 16, 3)
    assert (a % 2 == 1).all()
    assert value_dtype("affine64") == a.dtype == b.dtype
    assert a is permutations("affine64", 16, 3)[0]
    assert not a.flags.writeable


def test_own_values_are_copied() -> None:
    """Changing the array a signature was made from does not change the signature."""
    values = np.array([1, 2], np.uint32)
    made = Signature.from_values(values, num_parameters=9, support_size=1)
    values[0] = 9
    assert [1, 2] == made.values.tolist()
