"""Signatures by probing: the same values as by hashing every index, whatever is probed."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import datasketch
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelkin.core.kernels import fast, reference
from modelkin.core.kernels.reference.minhash import hashes
from modelkin.core.packed import PackedSupport
from modelkin.core.sketching import minima, probe_tables
from modelkin.core.sketching.probe_tables import Permutations, ProbeTables, make_table
from modelkin.core.sketching.schemes import permutations
from modelkin.core.support import Support

SCHEMES = st.sampled_from(["affine32", "affine64"])
SEEDS = st.integers(0, 2**32 - 1)
H = 16
WORK = 800


class Tables(ProbeTables):
    """Tables of one depth for all supports, however little work hashing would be."""

    def __init__(self, depth: int) -> None:
        super().__init__()
        self.depth = depth

    def table_for(
        self, drawn: Permutations, k: int, question_work: float
    ) -> probe_tables.Table | None:
        return make_table(drawn, min(self.depth, drawn.num_parameters))


@st.composite
def supports(draw: st.DrawFn) -> Support:
    """Of every density, from one index to all of them."""
    m = draw(st.integers(1, 3000))
    k = draw(st.integers(1, m))
    drawn = np.random.default_rng(draw(SEEDS)).choice(m, k, replace=False)
    return Support.from_indices(np.sort(drawn), m)


def hashed(support: Support, scheme: str, seed: int) -> npt.NDArray[Any]:
    """The values by definition: the least of all hash values."""
    a, b = permutations(scheme, H, seed)
    rows = [hashes(support.indices, a[j : j + 1], b[j : j + 1]).min() for j in range(H)]
    return np.array(rows, a.dtype)


@pytest.mark.slow
@given(support=supports(), scheme=SCHEMES, seed=SEEDS, depth=st.sampled_from([1, 3, 64, 3000]))
def test_probed_values_are_the_least_hash_values(
    each_kernels: ModuleType, support: Support, scheme: str, seed: int, depth: int
) -> None:
    """For any density, from the list and from the bitmap, also where tables hold no member."""
    expected = hashed(support, scheme, seed)
    list_ = minima.IndexMembers(support.indices, support.num_parameters)
    forms = list_, Bits(support, each_kernels)
    for members in forms:
        values = minima.minima(members, scheme, H, seed, Tables(depth))
        assert expected.dtype == values.dtype
        assert np.array_equal(expected, values)


class Bits(minima.IndexMembers):
    """A support that is probed as a bitmap, however sparse it is."""

    def __init__(self, support: Support, kernels: ModuleType) -> None:
        super().__init__(support.indices, support.num_parameters)
        self._kernels = kernels
        self._words = reference.bitmap(support.indices, support.num_parameters)

    def first(self, table: probe_tables.Table) -> npt.NDArray[np.int64]:
        rows: npt.NDArray[np.int64] = self._kernels.probe_bitmap(table, self._words)
        return rows


@pytest.mark.slow
@given(m=st.integers(1, 400), scheme=SCHEMES, seed=SEEDS, data=st.data())
def test_a_table_is_the_head_of_the_order_of_hash_values(
    each_kernels: ModuleType, m: int, scheme: str, seed: int, data: st.DataObject
) -> None:
    """Up to all M indices, in the order of their hash values, for each permutation."""
    depth = data.draw(st.integers(1, m))
    table = make_table(Permutations(scheme, m, H, seed), depth)
    a, b = permutations(scheme, H, seed)
    for j in range(H):
        order = np.argsort(hashes(np.arange(m, dtype=np.uint32), a[j : j + 1], b[j : j + 1]))
        assert np.array_equal(order[:depth], table[:, j])


@pytest.mark.parametrize("m", [60_000, 5_000_000, 2**31 + 11, 2**32])
def test_inverted_hash_values_ascend(implementation: ModuleType, m: int) -> None:
    """Every value below the last of a table that has an index below M is in the table."""
    a, b = permutations("affine32", 3, 5)
    table = implementation.least_preimages(a, b, m, 40)
    for j in range(3):
        values = hashes(table[:, j], a[j : j + 1], b[j : j + 1]).astype(np.int64)
        assert (np.diff(values) > 0).all()
        assert int(table[:, j].max()) < m
        if m == 2**32:
            assert list(range(40)) == values.tolist()
    if m == 60_000:  # small enough to hash all indices
        limit = int(hashes(table[-1], a, b).max())
        kept, counts = implementation.least_hash_indices(a, b, m, limit, 400)
        for j in range(3):
            assert set(table[:, j]) <= set(kept[j, : counts[j]])


@given(m=st.integers(1, 200_000), scheme=SCHEMES, seed=SEEDS, h=st.integers(1, 20))
def test_kernels_hash_alike(m: int, scheme: str, seed: int, h: int) -> None:
    """numba's tables, counts and rows are numpy's, also where there is no room for all."""
    a, b = permutations(scheme, h, seed)
    limit = min((1 << 8 * a.itemsize) - 1, (1 << 8 * a.itemsize) // m * 20)
    expected, actual = (
        kernels.least_hash_indices(a, b, m, limit, 15) for kernels in (reference, fast)
    )
    assert np.array_equal(expected[0], actual[0])
    assert np.array_equal(expected[1], actual[1])
    indices = np.arange(0, m, 7, dtype=np.uint32)
    table = actual[0].T.copy()
    assert np.array_equal(reference.probe_list(table, indices), fast.probe_list(table, indices))
    words = reference.bitmap(indices, m)
    assert np.array_equal(reference.probe_bitmap(table, words), fast.probe_bitmap(table, words))
    single = np.resize(indices, h)
    assert np.array_equal(reference.hashes(single, a, b), fast.hashes(single, a, b))


@pytest.mark.parametrize("scheme", ["affine32", "affine64"])
def test_probed_signatures_are_datasketchs(each_kernels: ModuleType, scheme: str) -> None:
    """Large supports are probed by default, again and again, with datasketch's values."""
    indices = np.flatnonzero(np.random.default_rng(1).random(60_000) < 0.4)
    minhash = datasketch.MinHash(num_perm=64, seed=9, scheme=scheme, hashfunc=lambda i: i)
    minhash.update_batch(indices.tolist())
    support = Support.from_indices(indices, 60_000)
    members = minima.IndexMembers(support.indices, 60_000)
    tables = ProbeTables()
    for _ in range(40):  # some are hashed, until a table is worth its work
        values = minima.minima(members, scheme, 64, 9, tables)
        assert np.array_equal(minhash.hashvalues, values)
    assert tables.table_for(Permutations(scheme, 60_000, 64, 9), support.k, WORK) is not None


def test_packed_supports_sign_like_supports() -> None:
    """A bitmap and a list give the signature of the support."""
    for k in (40, 4000):
        support = Support.from_indices(np.arange(0, k * 2, 2), 10_000)
        packed = PackedSupport.pack(support)
        assert ("bitmap" if k == 4000 else "list") == packed.kind
        assert support.signature(64, 3, "affine64") == packed.signature(64, 3, "affine64")
        for depth in (1, 10_000):
            signed = minima.minima(packed.members(), "affine32", 64, 3, Tables(depth))
            assert np.array_equal(support.signature(64, 3).values, signed)


def test_probed_shards_merge_into_the_whole() -> None:
    """Disjoint shards in probed signatures have the minima of the whole."""
    tables, shards = Tables(512), np.array_split(np.arange(0, 90_000, 3, dtype=np.uint32), 3)
    parts = [
        minima.minima(minima.IndexMembers(s, 90_000), "affine32", H, 1, tables) for s in shards
    ]
    whole = Support.from_indices(np.concatenate(shards), 90_000).signature(H)
    assert np.array_equal(whole.values, np.minimum.reduce(parts))


def test_a_table_is_made_once_hashing_has_cost_as_much() -> None:
    """The first supports of a space are hashed; a later one makes the table, which is kept."""
    drawn, k = Permutations("affine32", 1_000_000, 256, 1), 100_000
    tables = ProbeTables()
    answers = [tables.table_for(drawn, k, WORK) is not None for _ in range(400)]
    first = answers.index(True)
    assert first > 0
    assert all(answers[first:])
    hashed_before, making = first * k * 256, drawn.making(drawn.depth(k))
    assert hashed_before < making <= hashed_before + k * 256


def test_a_large_space_is_probed_at_once() -> None:
    """Where making the table takes less than one signature, the first support is probed."""
    assert ProbeTables().table_for(Permutations("affine32", 2**30, 64, 1), 2**26, WORK) is not None


@pytest.mark.parametrize(
    ("m", "k", "scheme"),
    [
        (2**20, 100, "affine32"),  # sparse: hashing is less work
        (2**40, 2**36, "affine64"),  # no table: it takes hours to make
        (2**32, 2**18, "affine32"),  # more memory than tables may have
    ],
)
def test_supports_that_are_hashed(m: int, k: int, scheme: str) -> None:
    """No table is made, however many supports come."""
    tables = ProbeTables(max_bytes=1 << 22)
    assert all(
        tables.table_for(Permutations(scheme, m, 256, 1), k, WORK) is None for _ in range(200)
    )


def test_a_sparser_support_deepens_the_table() -> None:
    """A table serves all denser supports, and is made again for a sparser one."""
    tables, drawn = ProbeTables(), Permutations("affine32", 2**26, 64, 1)
    dense, sparse = (tables.table_for(drawn, 2**26 // part, WORK) for part in (4, 16))
    assert dense is not None
    assert sparse is not None
    assert dense.shape[0] < sparse.shape[0]
    assert np.array_equal(dense, sparse[: dense.shape[0]])
    assert sparse is tables.table_for(drawn, 2**26 // 4, WORK)


def test_tables_keep_to_their_memory() -> None:
    """The least recently used table goes when another needs its room."""
    spaces = [Permutations("affine32", 2**26, 64, seed) for seed in range(4)]
    room = spaces[0].table_bytes(spaces[0].depth(2**24))
    tables = ProbeTables(max_bytes=3 * room)
    first = [tables.table_for(space, 2**24, WORK) for space in spaces[:3]]
    assert first[0] is tables.table_for(spaces[0], 2**24, WORK)  # used again
    tables.table_for(spaces[3], 2**24, WORK)
    assert first[0] is tables.table_for(spaces[0], 2**24, WORK)
    assert first[1] is not tables.table_for(spaces[1], 2**24, WORK)
