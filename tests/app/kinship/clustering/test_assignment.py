"""The votes that assign a new model, counted by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from app.kinship.clustering.nearest_members import nearest_cluster
from app.kinship.clustering.records import ClusteringContent
from modelkin.core.kinship.nearness import Nearness
from modelkin.core.kinship.newcomers import Yardstick, cluster_similarities, is_decided
from modelkin.errors import InvalidParameter
from modelkin.types.clusterings import Assignment
from modelkin.types.search import Neighbor


def placed(
    similarities: Sequence[float],
    labels: Sequence[int],
    yardstick: Yardstick | None = None,
    nearness: Mapping[str, Nearness] | None = None,
) -> Assignment:
    """The assignment of a model, from its similarities to models of these clusters.

    Args:
        yardstick: of each cluster.
        nearness: of some models, by name: m00, m01, ...
    """
    names = tuple(f"m{i:02d}" for i in range(len(labels)))
    pairs = zip(names, similarities, strict=True)
    near = [Neighbor(name, s, s / (2 - s), "exact", 0.0, 10) for name, s in pairs]
    clusters = tuple(sorted(set(labels) - {-1}))
    exemplars = tuple(names[list(labels).index(cluster)] for cluster in clusters)
    held = ClusteringContent(
        models=names, labels=tuple(labels), clusters=clusters, exemplars=exemplars
    )
    label_of = dict(zip(names, labels, strict=True))
    known = {} if yardstick is None else dict.fromkeys(clusters, yardstick)
    return nearest_cluster("c", held, label_of, near, nearness or {}, yardsticks=known)


@pytest.mark.parametrize("strangers", [1, 3])
def test_a_cluster_of_strangers_is_passed_over(strangers: int) -> None:
    """Where all that is near of the nearest cluster is at chance, kin of the next one win."""
    nearness = {f"m{at:02}": Nearness(at < strangers, -at) for at in range(strangers + 2)}
    labels = [0] * strangers + [1] * 2
    found = placed([0.5] * strangers + [0.4] * 2, labels, nearness=nearness)
    assert (1, -strangers, None) == (found.cluster, found.log10_p, found.reason)
    assert [-at for at in range(strangers + 2)] == [vote.log10_p for vote in found.votes]
    nowhere = placed([0.5] * 2, [0] * 2, nearness=dict.fromkeys(("m00", "m01"), Nearness(True, 0)))
    assert (-1, 0) == (nowhere.cluster, nowhere.log10_p)
    assert "as near as chance" in (nowhere.reason or "")


@pytest.mark.parametrize(
    ("labels", "cluster", "share"),
    [
        ([0, 1] * 6, 0, 0.5),
        ([1, 0] * 6, 1, 0.5),
        ([0, 1, 1, 1, 0, 1, 1, 1, 1, 1, 0, 0], 1, 0.8),
        ([2] * 12, 2, 1.0),
        ([-1] * 7 + [3] * 5, -1, 0.0),
    ],
)
def test_equally_near_models_have_a_vote_each(
    labels: list[int], cluster: int, share: float
) -> None:
    """If the first model without a vote is as near as the voters, votes are counted."""
    found = placed([0.5] * 12, labels)
    assert (cluster, share, 10) == (found.cluster, found.share, len(found.votes))


def test_a_vote_weighs_the_excess_similarity() -> None:
    """Two models that are much nearer win over ten, whose mean is hardly beyond the 11th of all."""
    found = placed([0.9, 0.9] + [0.51] * 8 + [0.5] * 2, [1, 1] + [0] * 10)
    assert 1 == found.cluster
    assert pytest.approx(0.4 / 0.408) == found.share
    assert pytest.approx(0.392 / 0.408) == found.margin


@pytest.mark.parametrize(
    ("similarities", "labels"),
    [
        (
            [0.86, 0.85, 0.82, *[0.75, 0.73, 0.70] * 2, 0.72, *[0.4] * 7],
            [2] * 3 + [0] * 7 + [1] * 7,
        ),
        (
            [0.88, 0.86, 0.85, 0.83, *[0.78, 0.74] * 2, 0.76, *[0.4] * 5],
            [2] * 4 + [0] * 5 + [1] * 5,
        ),
        ([0.8, 0.8] + [0.6] * 500, [2] * 2 + [0] * 500),
        ([0.8, 0.78, 0.76] + [0.72] * 7 + [0.7] * 40 + [0.71] * 3, [2] * 10 + [2] * 40 + [1] * 3),
        ([0.9, 0.8, 0.7, 0.6] * 3 + [0.1] * 80 + [0.7] * 3, [2] * 92 + [0] * 3),
    ],
    ids=["7-7-3", "5-5-4", "2-500", "500-3", "spread out"],
)
def test_a_cluster_is_as_near_as_its_ten_nearest(
    similarities: list[float], labels: list[int]
) -> None:
    """No size counts: small ones by large neighbours win, and large or spread-out ones likewise."""
    order = sorted(range(len(labels)), key=lambda at: -similarities[at])
    found = placed([similarities[at] for at in order], [labels[at] for at in order])
    assert 2 == found.cluster
    assert (found.margin or 0.0) > 0


def test_a_member_that_is_not_compared_is_as_far_as_the_farthest() -> None:
    """One near member of a large cluster does not stand for it, and more models have to be read."""
    near = [
        Neighbor(f"m{i}", s, s / (2 - s), "exact", 0.0, 10)
        for i, s in enumerate([0.9] + [0.6] * 10)
    ]
    label_of = {"m0": 1, **{f"m{i}": 0 for i in range(1, 11)}}
    assert {1: 0.63, 0: 0.6} == cluster_similarities(label_of, near, {1: 500, 0: 10})
    assert not is_decided(label_of, near, {1: 500, 0: 10})
    assert is_decided(label_of, near, {1: 1, 0: 10})


def test_models_that_share_nothing_have_no_vote() -> None:
    """Similarities of zero give no vote, a share of 0, no similarity and the reason."""
    found = placed([0.0] * 12, [0] * 12)
    assert (-1, 0.0, None, ()) == (found.cluster, found.share, found.similarity, found.votes)
    assert "it shares no index with any model of the clustering" == found.reason


def test_an_answer_has_what_it_was_decided_by() -> None:
    """The mean S to the nearest members, their names and, for no cluster, the reason."""
    found = placed([0.9, 0.8] + [0.5] * 10, [1, 1] + [0] * 10)
    assert (1, ("m00", "m01")) == (found.cluster, found.nearest_members)
    assert found.mean_similarity == pytest.approx(0.85)
    assert (None, None, None) == (found.within, found.reason, found.note)
    nowhere = placed([0.9] * 7 + [0.5] * 5, [-1] * 7 + [3] * 5)
    assert (0.9, None, ()) == (
        nowhere.similarity,
        nowhere.mean_similarity,
        nowhere.nearest_members,
    )
    assert "the models nearest to it are in no cluster" == nowhere.reason


@pytest.mark.parametrize(
    ("mean", "reason", "note"),
    [(0.9, None, None), (0.77, None, None), (0.76, None, "0.760"), (0.4, "0.400", None)],
)
def test_a_newcomer_is_measured_by_what_the_members_have(
    mean: float, reason: str | None, note: str | None
) -> None:
    """Below half-way from chance (0.1) to the members (0.8) it is in none; then there is a note."""
    found = placed([mean] * 4, [2] * 4, Yardstick(0.1, 0.8))
    assert found.within == 0.8
    assert found.mean_similarity == pytest.approx(mean)
    assert (found.cluster == -1) == (reason is not None)
    for said, figure in ((found.reason, reason), (found.note, note)):
        assert (said is None) == (figure is None)
        assert figure is None or (figure in (said or "") and "0.800" in (said or ""))


@pytest.mark.parametrize(
    ("labels", "chosen"),
    [
        ({7: {"m00", "m01", "x"}, 8: {"m02"}}, 7),
        ({"birds": ["m02", "m01", "m03"], "cats": ["m00"], "none": []}, "birds"),
    ],
)
def test_a_cluster_is_matched_by_its_nearest_members(labels: dict[Any, Any], chosen: Any) -> None:
    """Whatever the other grouping calls its clusters, and with members that are not clustered."""
    assert chosen == placed([0.9] * 4, [0] * 4).match(labels)


@pytest.mark.parametrize(
    ("similarity", "labels", "why"),
    [
        (0.0, {7: ["m00"]}, "in no cluster: it shares no index"),
        (0.9, {}, "has a member of cluster 0, such as 'm00'"),
        (0.9, {7: [1, 2], 8: [3]}, "has a member of cluster 0, such as 'm00'"),
        (0.9, {7: ["m00"], 8: ["m01"]}, "clusters 7, 8 have 1 members each"),
    ],
)
def test_a_cluster_that_cannot_be_matched_is_an_error(
    similarity: float, labels: dict[int, Any], why: str
) -> None:
    """Of a newcomer in none, of a grouping of others, of two that have as many members."""
    with pytest.raises(InvalidParameter, match=why):
        placed([similarity] * 2, [0] * 2).match(labels)
