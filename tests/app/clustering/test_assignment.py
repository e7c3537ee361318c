"""The votes that place a newcomer, counted by hand."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from app.clustering.assignment import _elected
from app.clustering.records import ClusteringContent
from modelkin.types.clusterings import Assignment
from modelkin.types.search import Neighbor


def placed(similarities: Sequence[float], labels: Sequence[int]) -> Assignment:
    """Where something goes that is so similar to models of these clusters, nearest first."""
    names = tuple(f"m{i:02d}" for i in range(len(labels)))
    told = zip(names, similarities, strict=True)
    near = [Neighbor(name, s, s / (2 - s), "exact", 0.0, 10) for name, s in told]
    clusters = tuple(sorted(set(labels) - {-1}))
    exemplars = tuple(names[list(labels).index(cluster)] for cluster in clusters)
    held = ClusteringContent(
        models=names, labels=tuple(labels), clusters=clusters, exemplars=exemplars
    )
    return _elected("c", held, dict(zip(names, labels, strict=True)), near)


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
def test_those_who_are_equally_near_have_a_vote_each(
    labels: list[int], cluster: int, share: float
) -> None:
    """Where the first without a vote is as near as those that have one, votes are counted."""
    found = placed([0.5] * 12, labels)
    assert (cluster, share, 10) == (found.cluster, found.share, len(found.votes))


def test_a_vote_weighs_what_it_is_nearer_than_the_first_without() -> None:
    """Two that are much nearer win over eight that hardly are."""
    found = placed([0.9, 0.9] + [0.51] * 8 + [0.5] * 2, [1, 1] + [0] * 10)
    assert 1 == found.cluster
    assert pytest.approx(0.8 / 0.88) == found.share


def test_where_nobody_shares_anything_nobody_votes() -> None:
    """Similarities of zero are no votes, and their share is none."""
    found = placed([0.0] * 12, [0] * 12)
    assert (-1, 0.0, 0.0, ()) == (found.cluster, found.share, found.similarity, found.votes)
