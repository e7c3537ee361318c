"""Chance: the expected overlap equals that of shuffles, and kappa is what lies beyond it."""

from __future__ import annotations

import itertools
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelkin import Layout, Support
from modelkin.core.similarity import chance, overlap

SHUFFLES = 200


def drawn(rng: np.random.Generator, layout: Layout, counts: np.ndarray) -> Support:
    """A support drawn uniformly within each tensor, of these counts."""
    begins = np.concatenate([[0], layout.ends[:-1]]).astype(np.int64)
    pieces = [
        begin + rng.choice(tensor.size, count, replace=False)
        for begin, tensor, count in zip(begins, layout.tensors, counts, strict=True)
    ]
    return Support.from_indices(np.sort(np.concatenate(pieces)), layout.num_parameters)


@st.composite
def tables(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """Sizes of tensors, some of them empty, and the counts of some supports, none of them empty."""
    sizes = np.array([*draw(st.lists(st.integers(0, 50), min_size=1, max_size=5)), 7])
    rows = draw(
        st.lists(
            st.tuples(*(st.integers(0, int(size)) for size in sizes[:-1]), st.integers(1, 7)),
            min_size=1,
            max_size=6,
        )
    )
    return sizes.astype(float), np.array(rows, np.int64)


def by_hand(ours: np.ndarray, theirs: np.ndarray, sizes: np.ndarray) -> float:
    """S0 of a pair, term by term."""
    shared = sum(a * b / n for a, b, n in zip(ours, theirs, sizes, strict=True) if n)
    return float(2 * shared / (ours.sum() + theirs.sum()))


@given(tables())
def test_pairs_rows_and_matrices_agree_with_the_formula(
    table: tuple[np.ndarray, np.ndarray],
) -> None:
    """S0 of a row, of listed pairs and of all pairs is the sum over tensors, 0 to 1."""
    sizes, counts = table
    expected = [[by_hand(a, b, sizes) for b in counts] for a in counts]
    assert np.allclose(expected, chance.expected_matrix(counts, sizes), rtol=1e-12)
    assert np.allclose(expected[0], chance.expected_similarities(counts[0], counts, sizes))
    pairs = np.array(list(itertools.product(range(len(counts)), repeat=2)))
    assert np.allclose(np.ravel(expected), chance.expected_of_pairs(counts, pairs, sizes))
    assert 0 <= np.min(expected) <= np.max(expected) <= 1 + 1e-12


def test_what_is_no_support_has_no_chance() -> None:
    """Rows of zeros are NaN in matrices and pairs, and leave the others as they are."""
    sizes, counts = np.array([4.0, 6.0]), np.array([[2, 3], [0, 0], [1, 0]])
    found = chance.expected_matrix(counts, sizes)
    assert np.isnan(found[1]).all()
    assert np.isnan(found[:, 1]).all()
    assert by_hand(counts[0], counts[2], sizes) == found[0, 2]
    pairs = chance.expected_of_pairs(counts, np.array([[0, 1], [2, 0]]), sizes)
    assert np.isnan(pairs[0])
    assert found[0, 2] == pairs[1]


def test_tensors_are_counted_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts that do not fit at a time give the same."""
    rng = np.random.default_rng(0)
    sizes = rng.integers(10, 90, 40).astype(float)
    counts = rng.integers(0, 10, (7, 40))
    pairs = np.argwhere(np.ones((7, 7)))
    whole = chance.expected_matrix(counts, sizes), chance.expected_of_pairs(counts, pairs, sizes)
    monkeypatch.setattr(chance, "_VALUES_AT_A_TIME", 30)
    parts = chance.expected_matrix(counts, sizes), chance.expected_of_pairs(counts, pairs, sizes)
    assert all(np.allclose(one, other) for one, other in zip(whole, parts, strict=True))


def test_a_table_of_chance_can_be_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pairs beyond an end are NaN; a matrix ends with the error of its report."""
    sizes, counts = np.full(4, 9.0), np.arange(20).reshape(5, 4) % 7
    monkeypatch.setattr(chance, "_VALUES_AT_A_TIME", 8)
    pairs = np.array([[0, 1], [0, 2], [1, 2], [3, 4], [1, 4]])
    answers = iter([False, False, True])
    found = chance.expected_of_pairs(counts, pairs, sizes, lambda: next(answers))
    whole = chance.expected_of_pairs(counts, pairs, sizes)
    assert found[:4].tolist() == whole[:4].tolist()
    assert np.isnan(found[4:]).all()
    reports: list[tuple[int, int]] = []

    def report(done: int, total: int) -> None:
        reports.append((done, total))
        if done == 2:
            raise TimeoutError

    with pytest.raises(TimeoutError):
        chance.expected_matrix(counts, sizes, report)
    assert [(0, 4), (1, 4), (2, 4)] == reports


@given(tables(), st.integers(1, 20))
def test_blocks_of_rows_equal_the_whole(table: tuple[np.ndarray, np.ndarray], values: int) -> None:
    """S0 of one with others is the same from blocks of any size, from a table or from rows."""
    sizes, counts = table
    counts = counts.astype("<u4")
    whole = [by_hand(counts[0].astype(int), row.astype(int), sizes) for row in counts]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chance, "_VALUES_AT_A_TIME", values)
        assert np.allclose(whole, chance.expected_similarities(counts[0], counts, sizes))
        assert np.allclose(whole, chance.expected_similarities(counts[0], list(counts), sizes))


@pytest.mark.slow
def test_one_with_many_takes_little_memory() -> None:
    """1,000 others of 20,000 tensors take less than half of their 160 MB in float64."""
    counts = np.ones((1_000, 20_000), np.uint32)
    tracemalloc.start()
    found = chance.expected_similarities(counts[0], counts, np.full(20_000, 10.0))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert np.allclose(0.1, found)
    assert peak < 80e6


@pytest.mark.parametrize("seed", range(4))
def test_the_expected_overlap_is_the_mean_of_shuffles(seed: int) -> None:
    """Over 200 shuffles within the tensors the mean of S is within 3 standard errors of S0."""
    rng = np.random.default_rng(seed)
    layout = Layout.of([("a", [40, 50]), ("b", [30]), ("c", [100, 11]), ("d", [3])])
    sizes = chance.tensor_sizes(layout)
    ours, theirs = (np.floor(sizes * rng.uniform(0.02, 0.9, 4)).astype(int) + 1 for _ in range(2))
    ours, theirs = np.minimum(ours, sizes.astype(int)), np.minimum(theirs, sizes.astype(int))
    found = [
        overlap.similarity(drawn(rng, layout, ours), drawn(rng, layout, theirs))
        for _ in range(SHUFFLES)
    ]
    [expected] = chance.expected_similarities(ours, theirs[None], sizes)
    error = np.std(found, ddof=1) / np.sqrt(SHUFFLES)
    assert abs(np.mean(found) - expected) <= 3 * error
    kappas = chance.kappas(np.array(found), np.full(SHUFFLES, expected))
    assert abs(np.mean(kappas)) <= 3 * error / (1 - expected)


def test_equal_supports_have_kappa_1_and_full_tensors_none() -> None:
    """Kappa of a support with itself is 1; where chance alone gives S = 1 there is none."""
    layout = Layout.of([("a", [20]), ("b", [5])])
    support = Support.from_indices([0, 3, 20, 21, 22, 23, 24], 25)
    [a, b] = overlap.by_tensor(support, support, layout)
    assert (1.0, 2 / 20, 1.0) == (a.similarity, a.expected, a.kappa)
    assert (1.0, 1.0, None) == (b.similarity, b.expected, b.kappa)
    counts = layout.counts(support.indices)
    [s0] = chance.expected_similarities(counts, counts[None], chance.tensor_sizes(layout))
    assert 1.0 == chance.kappa(1.0, float(s0))
    assert np.isnan(chance.kappas(np.array([1.0]), np.array([1.0]))).all()
    empty = overlap.by_tensor(Support.from_indices([0], 25), Support.from_indices([1], 25), layout)[
        1
    ]
    assert (None, None, None) == (empty.similarity, empty.expected, empty.kappa)
