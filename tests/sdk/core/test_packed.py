"""Packed supports with octaves: the bytes of a service's own disk."""

from __future__ import annotations

import numpy as np
import pytest

from modelkin import Support, select_support
from modelkin.core.packed import PackedSupport, packed_bytes, packed_shared_count
from modelkin.errors import InvalidSupport

M = 5000
IMPORTANCE = np.random.default_rng(5).random(M)
ORDERED = {k: select_support(IMPORTANCE, k=k, ordered=True) for k in (1, 60, 700)}


@pytest.mark.parametrize("k", ORDERED)
def test_octaves_stand_behind_the_packed_form(k: int) -> None:
    """A byte each; all that reads indices reads the same ones."""
    support = ORDERED[k]
    packed, plain = PackedSupport.pack(support), PackedSupport.pack(support.unordered())
    data = packed.to_bytes()
    assert plain.to_bytes() + np.asarray(support.octaves).tobytes() == data
    assert len(data) == packed.nbytes == packed_bytes(M, k, ordered=True) == plain.nbytes + k
    read = PackedSupport.from_buffer(data, M, k)
    assert (True, False) == (read.ordered, plain.ordered)
    assert support == read.unpack()
    assert support.digest == read.unpack().digest == read.digest
    assert support.unordered() == plain.unpack()
    assert k == packed_shared_count(read, plain)
    assert plain.signature() == read.signature()
    assert plain.sketch().to_bytes() == read.sketch().to_bytes()


@pytest.mark.parametrize("m", [1, 64, 30_000, 2**32 + 5])
@pytest.mark.parametrize("share", [2, 30, 4000])
def test_a_packed_support_has_the_digest_of_its_support(
    m: int, share: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a bitmap it is computed in parts, some without an index, and of a list in one."""
    monkeypatch.setattr("modelkin.core.packed._WORDS_A_STEP", 16)
    drawn = np.unique(np.random.default_rng(m).integers(0, min(m, 30_000), 1 + 30_000 // share))
    for indices in (drawn, drawn[(drawn < 50) | (drawn > 25_000)]):
        if indices.size:
            support = Support(indices, m)
            assert support.digest == PackedSupport.pack(support).digest


@pytest.mark.parametrize("k", [60, 700])
def test_damaged_octaves_are_no_support(k: int) -> None:
    """Another octave than ranks give, and one byte more or less."""
    data = bytearray(PackedSupport.pack(ORDERED[k]).to_bytes())
    for damaged in (data[:-1], data + b"\0", data[:-1] + bytes([data[-1] ^ 1])):
        with pytest.raises(InvalidSupport):
            PackedSupport.from_buffer(bytes(damaged), M, k)


def test_a_list_of_wide_indices_keeps_its_octaves() -> None:
    """Indices of eight bytes, and a buffer that is not aligned to them."""
    support = Support([1, 2**40, 2**41], 2**42, octaves=[1, 0, 1])
    data = memoryview(b"x" + PackedSupport.pack(support).to_bytes())[1:]
    assert support == PackedSupport.from_buffer(data, 2**42, 3).unpack()
