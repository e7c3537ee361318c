"""Two clusterings compared: pairs of clusters, moves, and models that only one of them has."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from app.kinship.clustering.comparison import Flow, compare
from app.kinship.clustering.records import ClusteringContent


def content(labels: dict[str, int]) -> ClusteringContent:
    """A clustering with these labels."""
    clusters = tuple(sorted({label for label in labels.values() if label >= 0}))
    exemplars = tuple(next(n for n, label in labels.items() if label == each) for each in clusters)
    return ClusteringContent(tuple(labels), tuple(labels.values()), clusters, exemplars)


def test_a_model_that_leaves_its_cluster_has_moved() -> None:
    """Clusters are paired by their models, whatever their ids; who is elsewhere has moved."""
    old = content({"a": 0, "b": 0, "c": 0, "d": 1, "e": 1})
    new = content({"a": 7, "b": 7, "c": 4, "d": 4, "e": 4})
    found = compare(new, old)
    expected = (Flow(0, 7, 2, True), Flow(1, 4, 2, True), Flow(0, 4, 1, False))
    assert expected == found.flows
    assert (5, 1, 0, 0) == (found.common, found.moved, found.joined, found.left)


def test_only_models_of_both_are_compared() -> None:
    """Newcomers and models that are gone are counted, and have not moved."""
    found = compare(content({"a": 0, "b": 0, "x": 1}), content({"a": 3, "b": 3, "y": 3, "z": 4}))
    assert (2, 1, 2) == (found.common, found.joined, found.left)
    assert (0, 1.0) == (found.moved, found.agreement)


def test_in_no_cluster_twice_has_stayed() -> None:
    """From a cluster to none is a move; in none both times is not."""
    found = compare(content({"a": 0, "b": -1, "c": -1}), content({"a": 0, "b": 0, "c": -1}))
    assert {Flow(0, 0, 1, True), Flow(0, -1, 1, False), Flow(-1, -1, 1, True)} == set(found.flows)


def test_nothing_in_common_has_no_agreement() -> None:
    """Two clusterings without a common model have no index and no flow."""
    found = compare(content({"a": 0}), content({"b": 0}))
    assert (None, 0, ()) == (found.agreement, found.moved, found.flows)


@pytest.mark.parametrize("seed", range(4))
def test_the_agreement_is_the_adjusted_rand_index(seed: int) -> None:
    """As scikit-learn has it; flows add up to the common models."""
    rng = np.random.default_rng(seed)
    one, other = rng.integers(0, 5, 60), rng.integers(0, 4, 60)
    labels = [{f"m{i}": int(label) for i, label in enumerate(each)} for each in (one, other)]
    found = compare(content(labels[1]), content(labels[0]))
    assert found.agreement == pytest.approx(adjusted_rand_score(one, other))
    assert 60 == sum(flow.models for flow in found.flows)
    assert len({flow.new for flow in found.flows if flow.stayed}) <= 4
