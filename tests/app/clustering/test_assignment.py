"""The votes that assign a new model, counted by hand."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from app.clustering.records import ClusteringContent
from app.clustering.votes import count_votes
from modelkin.types.clusterings import Assignment
from modelkin.types.search import Neighbor


def placed(similarities: Sequence[float], labels: Sequence[int]) -> Assignment:
    """The assignment of a model, from its similarities to models of these clusters."""
    names = tuple(f"m{i:02d}" for i in range(len(labels)))
    pairs = zip(names, similarities, strict=True)
    near = [Neighbor(name, s, s / (2 - s), "exact", 0.0, 10) for name, s in pairs]
    clusters = tuple(sorted(set(labels) - {-1}))
    exemplars = tuple(names[list(labels).index(cluster)] for cluster in clusters)
    held = ClusteringContent(
        models=names, labels=tuple(labels), clusters=clusters, exemplars=exemplars
    )
    return count_votes("c", held, dict(zip(names, labels, strict=True)), near)


@pytest.mark.parametrize(
    ("labels", "cluster", "share"),
    [
        ([0, 1] * 6, 0, 0.5),
        ([1, 0] * 6, 1, 0.5),
        ([0, 1, 1, 1, 0, 1, 1, 1, 1, 1, 0, 0], 1, 0.8),
        ([2] * 12, 2, 1.0),
        ([-1] * 7 + [3] * 5, -1, 0.7),
    ],
)
def test_equally_near_models_have_a_vote_each(
    labels: list[int], cluster: int, share: float
) -> None:
    """If the first model without a vote is as near as the voters, votes are counted."""
    found = placed([0.5] * 12, labels)
    assert (cluster, share, 10) == (found.cluster, found.share, len(found.votes))


def test_a_vote_weighs_the_excess_similarity() -> None:
    """Two voters that are much nearer win over eight that are hardly nearer."""
    found = placed([0.9, 0.9] + [0.51] * 8 + [0.5] * 2, [1, 1] + [0] * 10)
    assert 1 == found.cluster
    assert pytest.approx(0.8 / 0.88) == found.share


def test_models_that_share_nothing_have_no_vote() -> None:
    """Similarities of zero give no vote, and a share of 0."""
    found = placed([0.0] * 12, [0] * 12)
    assert (-1, 0.0, 0.0, ()) == (found.cluster, found.share, found.similarity, found.votes)
