"""Which of a target's indices others hold, what those are worth, and who covers them."""

from __future__ import annotations

import math
from types import ModuleType

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelkin.core.kernels import fast, reference
from modelkin.core.kinship import membership
from modelkin.core.kinship.cover import Step, greedy_cover
from modelkin.core.kinship.membership import TargetIndices
from modelkin.core.packed import PackedSupport
from modelkin.core.similarity.rarity import index_weights, rarities
from modelkin.core.support import Support
from modelkin.errors import SpaceMismatch

M = 700
SETS = st.sets(st.integers(0, M - 1), min_size=1, max_size=150)
MANY = st.lists(SETS, min_size=1, max_size=8)


def support(indices: set[int], m: int = M) -> Support:
    return Support.from_indices(sorted(indices), m)


def rows_of(target: Support, donors: list[set[int]]) -> npt.NDArray[np.uint64]:
    """What each donor holds of all indices of the target."""
    probe = TargetIndices.of(PackedSupport.pack(target))
    packed = [PackedSupport.pack(support(donor, target.num_parameters)) for donor in donors]
    return np.stack([probe.membership_bits(each) for each in packed])


@pytest.mark.slow
@given(target=SETS, donor=SETS)
@pytest.mark.usefixtures("each_kernels")
def test_holdings_are_those_of_the_sets(target: set[int], donor: set[int]) -> None:
    """A bit an index of the target, set where the donor has it, whatever form it is packed in."""
    bits = np.unpackbits(rows_of(support(target), [donor])[0].view(np.uint8), bitorder="little")
    held = [index in donor for index in sorted(target)]
    assert held == bits[: len(held)].astype(bool).tolist()
    assert not bits[len(held) :].any()


@pytest.mark.parametrize("k", [1, 500])
def test_both_packed_forms_are_asked(each_kernels: ModuleType, k: int) -> None:
    """Lists and bitmaps, of 32-bit and of 64-bit indices, answer alike."""
    assert each_kernels in (reference, fast)
    for m in (1_000, 2**33):
        donor = Support.from_indices(np.arange(k) * 2, m)
        packed = PackedSupport.pack(donor)
        target = PackedSupport.pack(Support.from_indices(np.arange(900), m))
        bits = TargetIndices.of(target).membership_bits(packed)
        assert min(k, 450) == int(np.bitwise_count(bits).sum())


@pytest.mark.parametrize("m", [30_000, 2**34])
@pytest.mark.parametrize("most", [1, 1000, 9_999])
def test_a_large_target_is_sampled_evenly(m: int, most: int) -> None:
    """Of a bitmap as of a list those indices are asked for that stand at equal distances in order,
    and no more; of a target that is small enough all.
    """
    indices = np.sort(np.random.default_rng(1).choice(30_000, 10_000, replace=False))
    target = PackedSupport.pack(Support.from_indices(indices, m))
    assert ("bitmap" if m == 30_000 else "list") == target.kind
    probe = TargetIndices.of(target, most)
    assert (most, False) == (probe.size, probe.whole)
    assert indices[np.arange(most) * 10_000 // most].tolist() == probe.indices.tolist()
    whole = TargetIndices.of(target)
    assert (True, indices.tolist()) == (whole.whole, whole.indices.tolist())


def test_a_sample_of_a_bitmap_of_many_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks are found in whatever block of the bitmap they are, also behind empty ones."""
    monkeypatch.setattr(membership, "_BLOCK_WORDS", 4)
    indices = np.concatenate([np.arange(0, 300, 2), np.arange(2_000, 2_900), [4_095]])
    target = PackedSupport.pack(Support.from_indices(indices, 4_096))
    assert "bitmap" == target.kind
    for most in (1, 50, 1_000):
        expected = indices[np.arange(most) * indices.size // most]
        assert expected.tolist() == TargetIndices.of(target, most).indices.tolist()


def test_holdings_of_another_space_are_refused() -> None:
    """Indices mean nothing elsewhere."""
    with pytest.raises(SpaceMismatch):
        TargetIndices.of(PackedSupport.pack(support({1}))).membership_bits(
            PackedSupport.pack(support({1}, M + 1))
        )


@pytest.mark.slow
@given(target=SETS, donors=MANY)
@pytest.mark.usefixtures("each_kernels")
def test_weights_are_inverse_document_frequencies(target: set[int], donors: list[set[int]]) -> None:
    """An index that c of n hold weighs log((n + 1) / (c + 1)), to a millionth."""
    rows = rows_of(support(target), donors)
    weights = index_weights(rows, len(target))
    n = len(donors)
    held = [sum(index in donor for donor in donors) for index in sorted(target)]
    expected = np.array([math.log((n + 1) / (c + 1)) for c in held])
    if not expected.any():  # every donor holds every index
        expected = np.ones(len(target))
    np.testing.assert_allclose(expected, weights / (1 << 20), atol=1e-6)


@pytest.mark.slow
@given(target=SETS, donors=MANY)
@pytest.mark.usefixtures("each_kernels")
def test_rarities_are_weighted_shares(target: set[int], donors: list[set[int]]) -> None:
    """A share is the weight of what is held by the weight of all, a gain the ratio of means."""
    rows = rows_of(support(target), donors)
    weights = index_weights(rows, len(target))
    weight_of = dict(zip(sorted(target), weights.tolist(), strict=True))
    for donor, rarity in zip(donors, rarities(rows, weights), strict=True):
        shared = [weight_of[index] for index in sorted(target) if index in donor]
        assert sum(shared) / weights.sum() == pytest.approx(rarity.share)
        gain = np.mean(shared) / weights.mean() if shared else 1.0
        assert gain == pytest.approx(rarity.gain)


def test_without_supports_to_count_all_indices_weigh_the_same() -> None:
    """Without a sample there are no weights by rarity: shares are those of counting."""
    rows = rows_of(support({1, 2, 3, 4}), [{1, 2, 9}, {7}])
    weights = index_weights(rows[:0], 4)
    assert [(0.5, 1.0), (0.0, 1.0)] == [(r.share, r.gain) for r in rarities(rows, weights)]


def greedy(target: set[int], donors: list[set[int]], most: int) -> list[Step]:
    """The same greedy choice over Python's sets."""
    left, steps = set(target), []
    for _ in range(most):
        best = max(range(len(donors)), key=lambda i: (len(donors[i] & left), -i))
        added = len(donors[best] & left)
        if not added:
            break
        left -= donors[best]
        share = 1 - len(left) / len(target)
        steps.append(Step(best, added / len(target), share))
    return steps


@pytest.mark.slow
@given(target=SETS, donors=MANY, most=st.integers(1, 9))
@pytest.mark.usefixtures("each_kernels")
def test_a_cover_takes_what_adds_most(target: set[int], donors: list[set[int]], most: int) -> None:
    """Each step is the first of the donors that hold most of what is still missing."""
    steps = greedy_cover(rows_of(support(target), donors), len(target), most)
    expected = greedy(target, donors, most)
    assert [step.row for step in expected] == [step.row for step in steps]
    for mine, theirs in zip(expected, steps, strict=True):
        assert mine.explained == pytest.approx(theirs.explained)
        assert mine.cumulative == pytest.approx(theirs.cumulative)


def test_a_cover_ends_where_nothing_is_left() -> None:
    """Two donors that together hold everything are enough, whatever other donors there are."""
    donors = [{1, 2}, {1, 2, 3}, {4, 5}, {1, 5}]
    steps = greedy_cover(rows_of(support({1, 2, 3, 4, 5}), donors), 5, 4)
    assert [(1, 0.6), (2, 1.0)] == [(step.row, step.cumulative) for step in steps]


@pytest.mark.slow
@given(
    target=SETS,
    donors=MANY,
    most=st.integers(1, 9),
    last=st.lists(st.booleans(), min_size=20, max_size=20),
)
def test_a_cover_takes_a_group_after_another(
    target: set[int], donors: list[set[int]], most: int, last: list[bool]
) -> None:
    """The second group covers what the first has left, as if that was all there is."""
    late = np.array(last[: len(donors)])
    groups = np.flatnonzero(~late), np.flatnonzero(late)
    steps = greedy_cover(rows_of(support(target), donors), len(target), most, groups)
    left, expected = set(target), list[int]()
    for group in groups:
        some = [donors[row] & left for row in group]
        found = greedy(left, some, most - len(expected)) if some and left else []
        for step in found:
            left -= some[step.row]
        expected += [int(group[step.row]) for step in found]
    assert expected == [step.row for step in steps]
    assert not steps or steps[-1].cumulative == pytest.approx(1 - len(left) / len(target))


def test_a_cover_ends_when_asked() -> None:
    donors = [{1}, {2}, {3}, {4}]
    answers = iter([False, False, True])
    rows = rows_of(support({1, 2, 3, 4}), donors)
    steps = greedy_cover(rows, 4, 4, stop=lambda: next(answers))
    assert [(0, 0.25), (1, 0.5)] == [(step.row, step.cumulative) for step in steps]


@given(data=st.data(), columns=st.integers(1, 200), n=st.integers(0, 5))
def test_the_kernels_agree(data: st.DataObject, columns: int, n: int) -> None:
    """Counts and sums by column are the same to the bit in numpy and compiled."""
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    rows = rng.integers(0, 2**64, (n, -(-columns // 64)), dtype=np.uint64)
    rows[:, -1:] &= np.uint64(2**64 - 1) >> np.uint64(-columns % 64)
    weights = rng.integers(0, 2**24, columns)
    for name, argument in (("column_counts", columns), ("weighted_sums", weights)):
        expected = getattr(reference, name)(rows, argument)
        actual = getattr(fast, name)(rows, argument)
        assert expected.dtype == actual.dtype
        np.testing.assert_array_equal(expected, actual)
