"""Groups are chosen by what is left without the mean: against its definition, and on digits."""

from __future__ import annotations

from typing import get_args

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score

from demo.planted import plant
from modelkin.core.clustering.centring import (
    SEPARATION,
    CentredDistances,
    apart,
    centre,
    is_apart,
    is_apart_in_c,
    is_kept,
    least_apart,
    without_strangers,
)
from modelkin.core.clustering.clustering import NOISE, mean_within
from modelkin.core.clustering.linkage import groups
from modelkin.core.clustering.quality import ClusterDistances
from modelkin.core.similarity.distances import MatrixDistances
from modelkin.core.subspaces.affinity import affinities
from tests.support.federations.clients import Kind, similarity, subspaces

Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int64]


def gram(n: int, seed: int, common: float = 1.0) -> Floats:
    """Products of unit vectors that have a direction in common."""
    rng = np.random.default_rng(seed)
    points = rng.random((n, 30)) + common
    points /= np.linalg.norm(points, axis=1)[:, None]
    return np.asarray(points @ points.T)


def of_groups(sizes: list[int], within: float, between: float) -> tuple[Floats, Labels]:
    """S of groups, and who is in which; 1 on the diagonal."""
    own = np.repeat(np.arange(len(sizes)), sizes)
    found = np.where(own[:, None] == own, within, between)
    np.fill_diagonal(found, 1.0)
    return found, own


def measured(found: Floats, labels: Labels) -> ClusterDistances:
    """The distances to the clusters."""
    return ClusterDistances.on(MatrixDistances(found), labels)


# --- C --------------------------------------------------------------------------------------------


@given(st.integers(2, 60), st.integers(0, 1000))
def test_c_is_the_cosine_without_the_mean(n: int, seed: int) -> None:
    """It is the double centred S, divided by the roots of its diagonal and clipped."""
    found = gram(n, seed)
    j = np.eye(n) - 1 / n
    rest = j @ found @ j
    root = np.sqrt(np.diag(rest))
    np.testing.assert_allclose(np.clip(rest / np.outer(root, root), 0, 1), centre(found), atol=1e-7)


@given(st.floats(0.0, 0.95), st.integers(0, 1000))
def test_what_all_have_in_common_does_not_matter(common: float, seed: int) -> None:
    """Points that are given one more common direction have the same C."""
    found = gram(20, seed)
    np.testing.assert_allclose(
        centre(found), centre(common + (1 - common) * found), atol=1e-7 / (1 - common)
    )


@pytest.mark.parametrize("n", [1, 2, 5])
def test_nothing_is_left_of_equal_models(n: int) -> None:
    """Models that are all the mean are alike no others, and no number is undefined."""
    np.testing.assert_array_equal(np.eye(n), centre(np.ones((n, n))))


def test_nearer_than_usual_is_what_counts() -> None:
    """Four groups of which two and two are nearer are four, equally far, without the mean."""
    found, own = of_groups([5, 5, 5, 5], 0.6, 0.3)
    pair = own // 2
    found = np.where((pair[:, None] == pair) & (own[:, None] != own), 0.4, found)
    without = centre(found)
    assert 0 == without[own[:, None] != own].max()
    assert without[own[:, None] == own].min() > 0.3


def test_blocks_are_of_the_matrix() -> None:
    """Some rows and columns are the same numbers, and a model is at no distance from itself."""
    distances = CentredDistances.of(MatrixDistances(gram(30, 0)))
    whole = distances.matrix()
    rows, columns = np.array([3, 17, 29]), np.array([29, 0, 3, 4])
    np.testing.assert_array_equal(whole[rows], distances.block(rows))
    np.testing.assert_array_equal(whole[np.ix_(rows, columns)], distances.block(rows, columns))
    assert (30, 1, 0.0) == (len(distances), distances.cost, np.abs(np.diag(whole)).max())
    np.testing.assert_allclose(whole, whole.T, atol=1e-12)


@pytest.mark.slow
def test_the_mean_of_many_is_that_of_a_sample() -> None:
    """A sample of a thousand has nearly the mean of all."""
    similarity = gram(2500, 0)
    sample = np.sort(np.random.default_rng(0).choice(2500, 1000, replace=False))
    found = CentredDistances.of(MatrixDistances(similarity), sample).matrix()
    assert 0.0 < np.abs(found - (1.0 - centre(similarity))).max() < 0.05


# --- whether groups count -------------------------------------------------------------------------


def test_apart_is_the_difference_of_two_means() -> None:
    """S within less S between, of pairs; models in no cluster do not count."""
    found = gram(20, 3)
    labels = np.random.default_rng(0).integers(-1, 4, 20)
    inside = labels != NOISE
    same = (labels[:, None] == labels) & ~np.eye(20, dtype=bool)
    both = inside[:, None] & inside
    expected = found[same & both].mean() - found[both & (labels[:, None] != labels)].mean()
    assert apart(measured(found, labels)) == pytest.approx(expected)


@pytest.mark.parametrize("labels", [[0] * 6, list(range(6)), [NOISE] * 6, [0, 0, 0] + [NOISE] * 3])
def test_without_two_sides_nothing_is_apart(labels: list[int]) -> None:
    """One cluster, single models, or none: there is no difference, and no group."""
    them = measured(gram(6, 0), np.array(labels))
    assert 0.0 == apart(them)
    assert not is_apart(them, 0.0, 0.0)
    assert not is_apart_in_c(them, 0.0, 1.0, 0.0)


def test_few_models_need_the_whole_separation() -> None:
    """From 20 models on, groups found in C need three tenths of it."""
    assert SEPARATION == least_apart(19)
    assert [pytest.approx(0.03), 0.015] == [least_apart(20), least_apart(500, 0.05)]


@pytest.mark.slow
@pytest.mark.parametrize(("n", "size"), [(24, 6), (60, 3), (200, 2), (400, 40)])
def test_groups_by_chance_are_not_apart(n: int, size: int) -> None:
    """Groups chosen from noise differ by more than .03, and by no more than chance."""
    rng = np.random.default_rng(n)
    noise = np.triu(rng.normal(0.4, 0.1, (n, n)), 1)
    found = np.clip(noise + noise.T + np.eye(n), 0, 1)
    left, labels = set(range(n)), np.zeros(n, np.int64)
    for cluster in range(n // size):
        chosen = [left.pop()]
        while len(chosen) < size:  # the nearest to those that were chosen
            best = max(left, key=lambda row: found[row, chosen].sum())
            left.remove(best)
            chosen.append(best)
        labels[chosen] = cluster
    them, variance = measured(found, labels), float(found[~np.eye(n, dtype=bool)].var())
    assert apart(them) > 0.03
    assert not is_apart(them, variance, 0.03)
    assert not is_apart_in_c(them, variance, 1.0)
    found += 0.4 * (labels[:, None] == labels)
    assert is_apart(measured(found, labels), variance, 0.03)


def test_two_kinds_of_evidence_count_in_c() -> None:
    """Groups a little more apart than by chance need a silhouette, clear ones do not."""
    found, own = of_groups([6, 6, 6, 6], 0.5, 0.4)
    them, share = measured(found, own), 5 / 23

    def answers(times: float, silhouette: float) -> tuple[bool, bool]:
        """Whether they count in S and in C, if they are so many times as far apart as by chance."""
        spread = 0.1 / (2 * times) * (5 / np.log(24)) ** 0.5
        variance = share * (1 - share) * 0.1**2 + spread**2
        return is_apart(them, variance, 0.099), is_apart_in_c(them, variance, silhouette)

    assert (False, False) == answers(0.9, 0.5)
    assert (True, False) == answers(1.2, 0.11)
    assert (True, True) == answers(1.2, 0.12)
    assert (True, True) == answers(1.4, 0.01)


def test_pieces_of_a_large_group_are_refused() -> None:
    """Groups found in C count unless they lose half of the silhouette in S."""
    assert is_kept(0.2, 0.3)
    assert is_kept(0.2, None)
    assert not is_kept(0.1, 0.3)
    assert not is_kept(None, 0.3)


def test_strangers_part() -> None:
    """A cluster no more alike than any two models falls apart, or into no cluster."""
    found, own = of_groups([5, 4, 6], 0.5, 0.1)
    found[np.ix_(own == 2, own == 2)] = 0.1
    np.fill_diagonal(found, 1.0)
    means = found.mean(axis=0)
    parted = without_strangers(MatrixDistances(found), own, means, 0.03)
    assert [0] * 5 + [1] * 4 + [2, 3, 4, 5, 6, 7] == parted.tolist()
    own[4] = NOISE
    parted = without_strangers(MatrixDistances(found), own, means, 0.03)
    assert [0] * 4 + [NOISE] + [1] * 4 + [NOISE] * 6 == parted.tolist()


def test_one_cluster_of_all_stays() -> None:
    """It has no others to be more alike than."""
    found = gram(9, 0)
    labels = np.zeros(9, np.int64)
    parted = without_strangers(MatrixDistances(found), labels, found.mean(axis=0), 0.03)
    np.testing.assert_array_equal(labels, parted)


def test_the_mean_within_is_the_length_of_the_centroid() -> None:
    """So the distance of a point to a centroid follows from similarities alone."""
    rng = np.random.default_rng(0)
    points = rng.random((40, 7))
    points /= np.linalg.norm(points, axis=1)[:, None]
    found = points @ points.T
    labels = rng.integers(-1, 3, 40)
    within = mean_within(MatrixDistances(found), labels)
    for cluster, own in enumerate(within.tolist()):
        centroid = points[labels == cluster].mean(axis=0)
        assert own == pytest.approx(centroid @ centroid)
        expected = ((points[0] - centroid) ** 2).sum()
        assert expected == pytest.approx(1 - 2 * found[0, labels == cluster].mean() + own)


def test_the_mean_within_a_large_cluster_is_sampled() -> None:
    """A regular sample of its members has nearly their mean; one member has 1."""
    found = gram(301, 0)
    labels = np.append(np.zeros(300, np.int64), 1)
    within = mean_within(MatrixDistances(found), labels, most=50)
    assert found[:300, :300].mean() == pytest.approx(float(within[0]), abs=2e-3)
    assert 1.0 == within[1]


# --- planted clients ------------------------------------------------------------------------------


def agreements(scenario: str, kind: Kind, seeds: int) -> list[float]:
    """The adjusted Rand index with the planted groups, their number left free."""
    found = []
    for seed in range(seeds):
        labels, _ = groups(similarity(scenario, kind, seed))
        found.append(adjusted_rand_score(plant(scenario, seed=seed).groups, labels))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["supports", "classes"])
@pytest.mark.parametrize(
    ("scenario", "seeds", "least"),
    [
        ("labels", 1, 0.95),
        ("noisy labels", 1, 0.95),
        ("rotations", 3, 0.95),
        ("styles", 3, 0.95),
        ("permuted labels", 1, 0.95),
        ("swapped labels", 3, 0.85),
    ],
)
def test_the_planted_number_of_groups_is_found(
    scenario: str, seeds: int, least: float, kind: Kind
) -> None:
    """Also where some groups are nearer than others, or differ in two labels alone."""
    assert np.mean(agreements(scenario, kind, seeds)) >= least


@pytest.mark.slow
@pytest.mark.parametrize("kind", get_args(Kind))
def test_clients_with_alike_data_are_one_group(kind: Kind) -> None:
    """By supports and by subspaces."""
    assert [1.0] * 2 == agreements("iid", kind, 2)


@pytest.mark.parametrize("scenario", ["labels", "noisy labels", "styles"])
def test_labels_are_not_needed_for_most_groups(scenario: str) -> None:
    """The samples alone show labels and styles."""
    assert np.mean(agreements(scenario, "whole", 1)) >= 0.95


def test_faint_groups_are_found_too() -> None:
    """Groups with hardly a silhouette count where chance makes none of them."""
    for scenario in ("rotations", "permuted labels"):
        clients = plant(scenario, data="synthetic", seed=2)
        labels, _ = groups(affinities(subspaces(clients), "classes"))
        assert 1.0 == adjusted_rand_score(clients.groups, labels)
