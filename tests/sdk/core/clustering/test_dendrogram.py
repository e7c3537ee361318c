"""The dendrogram of average linkage, against scipy's, and its cuts."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.cluster import hierarchy
from scipy.spatial.distance import squareform

from modelkin.core.clustering.dendrogram import dendrogram
from modelkin.core.clustering.linkage import average_linkage, cut


def distances(seed: int, count: int = 14) -> np.ndarray:
    """Random distances."""
    found = np.random.default_rng(seed).random((count, count))
    found = (found + found.T) / 2
    np.fill_diagonal(found, 0)
    return found


@pytest.mark.parametrize("seed", range(4))
def test_a_cut_leaves_the_groups_of_scipy(seed: int) -> None:
    """At any number of groups, and at the height that the tree names for it."""
    given = distances(seed)
    tree = dendrogram(given)
    expected = hierarchy.linkage(squareform(given), "average")
    assert expected[:, 2] == pytest.approx([join.height for join in tree.joins])
    for count in range(1, 15):
        groups = tree.groups(tree.height_of(count))
        assert count == len(groups)
        found = {frozenset(tree.order[place] for place in group) for group in groups}
        labels = cut(average_linkage(given), count)
        assert found == {frozenset(np.flatnonzero(labels == each)) for each in range(count)}


def test_a_join_is_of_two_runs() -> None:
    """Its height is the mean distance of the models on its two sides."""
    given = distances(9)
    tree = dendrogram(given)
    for join in tree.joins:
        left = list(tree.order[join.begin : join.middle])
        right = list(tree.order[join.middle : join.end])
        assert join.height == pytest.approx(given[np.ix_(left, right)].mean())


@pytest.mark.parametrize("count", [0, 1])
def test_fewer_than_two_models_have_no_join(count: int) -> None:
    """The tree of one model is the model."""
    tree = dendrogram(np.zeros((count, count)))
    assert (tuple(range(count)), ()) == (tree.order, tree.joins)
    assert [range(1)] * count == tree.groups(0.5)


def test_equal_models_are_one_group_at_no_height() -> None:
    """Copies are together however low the cut."""
    assert [range(4)] == dendrogram(np.zeros((4, 4))).groups(0.0)
