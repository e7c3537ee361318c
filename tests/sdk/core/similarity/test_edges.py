"""Edges of a graph of kin, compared with a plain search through the matrix."""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelkin.core.packed import PackedSupport
from modelkin.core.similarity.distances import MatrixDistances
from modelkin.core.similarity.edges import Pairs, exact_similarity, nearest_pairs, pairs_from
from modelkin.core.support import Support

Matrix = npt.NDArray[np.float64]


def matrices(levels: int = 5) -> st.SearchStrategy[Matrix]:
    """Symmetric similarities of few levels, so that there are ties."""

    def make(seed: int, n: int) -> Matrix:
        drawn = np.random.default_rng(seed).integers(0, levels, (n, n)) / levels
        matrix = np.triu(drawn, 1)
        return matrix + matrix.T + np.eye(n)

    return st.builds(make, st.integers(0, 2**32 - 1), st.integers(1, 9))


def by_search(matrix: Matrix, k: int) -> set[tuple[int, int]]:
    """Each row with its k most similar others, ties to the lower row."""
    n, edges = len(matrix), set()
    for row in range(n):
        others = sorted((o for o in range(n) if o != row), key=lambda o: (-matrix[row, o], o))
        edges |= {(min(row, other), max(row, other)) for other in others[:k]}
    return edges


def as_tuples(pairs: Pairs) -> list[tuple[int, int]]:
    return [(a, b) for a, b in pairs.ends.tolist()]


@given(matrix=matrices(), k=st.integers(1, 10))
def test_nearest_pairs_are_those_of_a_search(matrix: Matrix, k: int) -> None:
    """Every pair once, ascending, with its similarity, however many are asked for."""
    pairs = nearest_pairs(MatrixDistances(matrix), k)
    assert sorted(by_search(matrix, k)) == as_tuples(pairs)
    assert [matrix[a, b] for a, b in as_tuples(pairs)] == pytest.approx(pairs.similarity.tolist())


@given(matrix=matrices(), k=st.integers(1, 10))
def test_the_nearest_of_all_pairs_are_the_nearest(matrix: Matrix, k: int) -> None:
    """Chosen among all pairs instead, the nearest are the same."""
    n = len(matrix)
    everyone = Pairs(
        np.array(list(itertools.combinations(range(n), 2)), np.int64).reshape(-1, 2),
        matrix[np.triu_indices(n, 1)],
    )
    assert sorted(by_search(matrix, k)) == as_tuples(everyone.of(everyone.among_nearest(k)))


@given(matrix=matrices(), least=st.sampled_from([0.0, 0.2, 0.4, 0.9, 1.0]))
def test_pairs_from_a_threshold(matrix: Matrix, least: float) -> None:
    """All pairs at the threshold or beyond, unless there are more than may be."""
    expected = [
        (a, b)
        for a, b in itertools.combinations(range(len(matrix)), 2)
        if 1.0 - (1.0 - matrix[a, b]) >= least
    ]
    pairs = pairs_from(MatrixDistances(matrix), least, len(expected))
    assert pairs is not None
    assert expected == as_tuples(pairs)
    if expected:
        assert pairs_from(MatrixDistances(matrix), least, len(expected) - 1) is None


@pytest.mark.slow
@given(
    supports=st.lists(
        st.sets(st.integers(0, 499), min_size=1, max_size=200), min_size=2, max_size=7
    ),
    data=st.data(),
)
@pytest.mark.usefixtures("each_kernels")
def test_pairs_of_supports_are_compared_exactly(
    supports: list[set[int]], data: st.DataObject
) -> None:
    """Any pairs, of bitmaps, of lists and of both, have the S of the two sets."""
    everyone = list(itertools.combinations(range(len(supports)), 2))
    asked = sorted(data.draw(st.sets(st.sampled_from(everyone))))
    packed = {
        row: PackedSupport.pack(Support.from_indices(sorted(indices), 500))
        for row, indices in enumerate(supports)
    }
    ends = np.array(asked, np.int64).reshape(-1, 2)
    expected = [
        2 * len(supports[a] & supports[b]) / (len(supports[a]) + len(supports[b])) for a, b in asked
    ]
    assert expected == pytest.approx(exact_similarity(packed, ends).tolist())
