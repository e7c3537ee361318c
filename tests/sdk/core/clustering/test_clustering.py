"""Labels: exemplars, agreement, ids that last; and the pairing that makes them last."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment
from sklearn.metrics import adjusted_rand_score

from modelkin.core.clustering.assignment import best_pairs
from modelkin.core.clustering.clustering import NOISE, agreement, compact, exemplars, lasting_ids
from modelkin.core.similarity import nearest as nearest_module
from modelkin.core.similarity.distances import MatrixDistances, SignatureDistances
from modelkin.core.similarity.nearest import nearest

labels_of_ten = st.lists(st.integers(0, 4), min_size=10, max_size=10)


@given(one=labels_of_ten, other=labels_of_ten)
def test_agreement_is_the_adjusted_rand_index(one: list[int], other: list[int]) -> None:
    """Of any two clusterings it is what scikit-learn computes."""
    expected = adjusted_rand_score(one, other)
    assert pytest.approx(expected) == agreement(np.array(one), np.array(other))


def test_models_in_no_cluster_do_not_agree_with_each_other() -> None:
    """Two that are both in none were not said to be kin: each counts as a cluster of its own."""
    one, other = np.array([0, 0, 1, NOISE, NOISE]), np.array([0, 0, 1, 2, 3])
    assert 1.0 == agreement(one, other)
    assert agreement(one, np.array([0, 0, 1, 2, 2])) < 1.0


@pytest.mark.parametrize("n", [0, 1, 2])
def test_few_models_agree_with_themselves(n: int) -> None:
    """Also where there are no pairs to agree on."""
    assert 1.0 == agreement(np.zeros(n, np.int64), np.zeros(n, np.int64))


def test_clusters_are_numbered_by_size() -> None:
    """The largest is 0; equal ones go by their first member; noise stays noise."""
    labels = np.array([7, -1, 5, 3, 3, 5, 9, 3])
    np.testing.assert_array_equal([2, NOISE, 1, 0, 0, 1, 3, 0], compact(labels))


def brute_force(table: np.ndarray) -> int:
    """The most that any assignment of a small table shares."""
    a, b = table.shape
    if a > b:
        return brute_force(table.T)
    return max(sum(int(table[i, j]) for i, j in enumerate(p)) for p in permutations(range(b), a))


@given(
    cells=st.lists(st.integers(0, 9), min_size=12, max_size=12), shape=st.sampled_from([3, 4, 2])
)
def test_no_pairing_shares_more(cells: list[int], shape: int) -> None:
    """The sum of the pairs is the largest of all permutations, and no side stands twice."""
    table = np.array(cells).reshape(shape, -1)
    i, j = np.nonzero(table)
    pairs = best_pairs(i, j, table[i, j])
    assert brute_force(table) == sum(table[pair] for pair in pairs)
    assert len(pairs) == len({i for i, _ in pairs}) == len({j for _, j in pairs})


def test_large_pairings_are_the_best_there_are() -> None:
    """Hundreds of clusters on either side, in one group or in many, sum to what scipy finds."""
    rng = np.random.default_rng(0)
    for density in (0.004, 0.02, 1.0):
        table = rng.integers(1, 1000, (150, 220)) * (rng.random((150, 220)) < density)
        i, j = np.nonzero(table)
        rows, columns = linear_sum_assignment(table, maximize=True)
        found = best_pairs(i, j, table[i, j])
        assert table[rows, columns].sum() == sum(table[pair] for pair in found)


def names(count: int) -> list[str]:
    return [f"m{i}" for i in range(count)]


def test_unchanged_clusters_keep_their_ids() -> None:
    """The same clusters under other labels have the ids they had."""
    previous = dict(zip(names(6), [4, 4, 9, 9, 9, 2], strict=True))
    ids = lasting_ids(names(6), np.array([1, 1, 0, 0, 0, 2]), previous)
    assert [9, 4, 2] == ids.tolist()


def test_a_cluster_that_splits_leaves_its_id_with_most_of_its_members() -> None:
    """The larger part goes on, the smaller one is new."""
    previous = dict.fromkeys(names(5), 3)
    ids = lasting_ids(names(5), np.array([1, 1, 0, 0, 0]), previous)
    assert [3, NOISE] == ids.tolist()


def test_clusters_that_merge_leave_the_id_of_the_larger() -> None:
    """What both become has the id of the one that gave more members; the other id rests."""
    previous = dict(zip(names(5), [6, 6, 8, 8, 8], strict=True))
    assert [8] == lasting_ids(names(5), np.zeros(5, np.int64), previous).tolist()


def test_newcomers_make_no_old_cluster() -> None:
    """A cluster of models that were not there, or in no cluster, is new."""
    previous = {"m0": 0, "m1": 0, "m2": NOISE}
    labels = np.array([0, 0, 1, 1, 1])
    assert [0, NOISE] == lasting_ids(names(5), labels, previous).tolist()


def test_in_the_first_clustering_all_is_new() -> None:
    """Without a previous one no cluster goes on, and where there is no cluster there is no id."""
    assert [NOISE, NOISE] == lasting_ids(names(3), np.array([0, 1, NOISE]), {}).tolist()
    assert [] == lasting_ids(names(2), np.array([NOISE, NOISE]), {}).tolist()


@given(old=labels_of_ten, new=labels_of_ten)
def test_ids_are_distinct_and_most_models_stay(old: list[int], new: list[int]) -> None:
    """No id stands twice, and no other naming would keep more models in their cluster."""
    labels = np.unique(new, return_inverse=True)[1]
    previous = dict(zip(names(10), old, strict=True))
    ids = lasting_ids(names(10), labels, previous)
    kept_ids = ids[ids != NOISE].tolist()
    assert len(kept_ids) == len(set(kept_ids))
    table = np.zeros((labels.max() + 1, 5), np.int64)
    np.add.at(table, (labels, np.array(old)), 1)
    rows, columns = linear_sum_assignment(table, maximize=True)
    kept = sum(ids[label] == before for label, before in zip(labels, old, strict=True))
    assert table[rows, columns].sum() == kept


def test_exemplars_are_nearest_to_all_members() -> None:
    """The exemplar has the least sum of distances within its cluster, ties by row."""
    rng = np.random.default_rng(1)
    similarity = rng.random((30, 30))
    similarity = (similarity + similarity.T) / 2
    np.fill_diagonal(similarity, 1)
    labels = compact(rng.integers(-1, 4, 30))
    found = exemplars(MatrixDistances(similarity), labels)
    for label, row in enumerate(found):
        members = np.flatnonzero(labels == label)
        sums = (1 - similarity)[np.ix_(members, members)].sum(axis=1)
        assert members[sums.argmin()] == row


def test_the_exemplar_of_a_large_cluster_is_in_its_middle() -> None:
    """Beyond 2,000 members a sample of them stands for all."""
    places = np.random.default_rng(2).random(2500)
    similarity = 1 - np.abs(places[:, None] - places)
    (row,) = exemplars(MatrixDistances(similarity), np.zeros(2500, np.int64))
    assert abs(places[row] - np.median(places)) < 0.02


def test_nearest_are_those_of_a_full_sort() -> None:
    """With ties by row, each model's nearest are the first of all others sorted by distance."""
    rng = np.random.default_rng(3)
    similarity = rng.integers(0, 5, (60, 60)) / 5
    similarity = np.maximum(similarity, similarity.T)
    np.fill_diagonal(similarity, 1)
    for k in (1, 7, 59):
        found = nearest(MatrixDistances(similarity), k)
        for row, (others, far) in enumerate(zip(found.rows, found.distances, strict=True)):
            expected = np.argsort(np.delete(1 - similarity[row], row), kind="stable")[:k]
            expected = np.delete(np.arange(60), row)[expected]
            assert set(expected.tolist()) == set(others.tolist())
            np.testing.assert_allclose(1 - similarity[row, others], far)


@given(
    n=st.integers(2, 40),
    k=st.integers(1, 12),
    rows_a_step=st.integers(1, 50),
    stops_after=st.integers(0, 50),
    seed=st.integers(0, 99),
)
def test_nearest_signatures_are_those_of_the_matrix(
    n: int, k: int, rows_a_step: int, stops_after: int, seed: int
) -> None:
    """Comparing each pair once gives what the distances of all pairs give, ties and all.

    Stopped early, the first models have theirs.
    """
    rng = np.random.default_rng(seed)
    values = rng.integers(0, 3, (n, 24)).astype(np.uint32) << np.uint32(7)
    distances, k = SignatureDistances(values), min(k, n - 1)
    far = distances.block(np.arange(n))
    matrix = MatrixDistances(1.0 - far)
    expected, calls = nearest(matrix, k), iter(range(10**6))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nearest_module, "_ROWS_A_STEP", rows_a_step)
        found = nearest(distances, k, stop=lambda: next(calls) == stops_after)
    done = min(n, rows_a_step * stops_after)
    assert len(found.rows) == done
    assert np.array_equal(expected.rows[:done], found.rows)
    assert np.array_equal(
        distances.block(np.arange(n))[np.arange(done)[:, None], found.rows], found.distances
    )


def test_the_best_of_the_nearest_come_in_order() -> None:
    """Fewer of them are the nearest ones, by distance and then by row."""
    similarity = np.ones((4, 4))
    similarity[0, 1:] = similarity[1:, 0] = [0.5, 0.9, 0.5]
    best = nearest(MatrixDistances(similarity), 3).best(2)
    assert [2, 1] == best.rows[0].tolist()
    assert [0.1, 0.5] == pytest.approx(best.distances[0])
