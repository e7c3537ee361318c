"""The simulated models follow the law that they are said to, and the ways to search them work."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.retrieval.cascade import Cascade, Supports
from benchmarks.retrieval.peers import Datasketch, ranked
from benchmarks.retrieval.planted_models import (
    BACKGROUNDS,
    DENSITY,
    NEAR,
    Background,
    Members,
    bits,
    simulated,
)
from modelkin.core.estimators import jaccard_of

SPARSE, MIXED, DENSE, FEDERATION = BACKGROUNDS


@pytest.mark.slow
@pytest.mark.parametrize("background", BACKGROUNDS, ids=lambda each: each.name)
def test_kin_are_as_similar_as_they_are_said_to_be(background: Background) -> None:
    """Over 200 queries the share of equal values is the J of each stratum, but for 4 errors."""
    kin = simulated(background, 4000, 200)
    for place, similarity in enumerate(background.similarities):
        jaccard = jaccard_of(float(similarity))
        equal = (kin.values[kin.near[:, place]] == kin.queries).mean()
        error = np.sqrt(jaccard * (1 - jaccard) / kin.queries.size)
        assert abs(equal - jaccard) < 4 * error


@pytest.mark.parametrize(
    ("background", "jaccard"), [(SPARSE, 0.05), (DENSE, 0.1), (FEDERATION, 0.25)]
)
def test_others_are_as_unrelated_as_they_are_said_to_be(
    background: Background, jaccard: float
) -> None:
    """Unrelated models agree as often as random supports of that density do."""
    kin = simulated(background, 4000, 1)
    equal = (kin.values[:2000] == kin.values[2000:]).mean()
    assert abs(equal - jaccard) < 4 * np.sqrt(jaccard * (1 - jaccard) / kin.values.size * 2)


def test_popular_places_bring_the_query_nearer() -> None:
    """Where models follow a prototype in places, they agree with a query more than sparse ones."""
    means = []
    for background in (SPARSE, MIXED):
        kin = simulated(background, 4000, 20)
        others = np.setdiff1d(np.arange(4000), kin.near)
        means.append(np.mean([(kin.values[others] == query).mean() for query in kin.queries]))
    assert means[1] > means[0] + 0.01


def test_the_models_are_the_same_every_time() -> None:
    """Two runs search the same models with the same queries."""
    a, b = simulated(MIXED, 500, 5), simulated(MIXED, 500, 5)
    assert np.array_equal(a.values, b.values)
    assert np.array_equal(a.queries, b.queries)
    assert np.array_equal(a.near, b.near)


def test_found_counts_each_kin_once() -> None:
    """Kin among the answers are found, absent answers count nothing."""
    kin = simulated(SPARSE, 100, 2)
    answers = np.full((2, NEAR), -1)
    answers[0] = kin.near[0][::-1]
    answers[1, 3] = kin.near[1, 4]
    expected = np.zeros((2, NEAR), bool)
    expected[0], expected[1, 4] = True, True
    assert np.array_equal(expected, kin.found(answers))


@pytest.mark.parametrize("probability", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_bits_are_set_with_their_probability(probability: float) -> None:
    """A hundred thousand words have as many bits as asked for, to the nearest 256th."""
    words = bits(np.random.default_rng(0), probability, 100_000)
    share = np.bitwise_count(words).mean() / 64
    assert abs(share - round(256 * probability) / 256) < 0.001


@pytest.mark.parametrize("background", BACKGROUNDS, ids=lambda each: each.name)
def test_members_overlap_as_the_signatures_do(background: Background) -> None:
    """Sketches of kin have their S, those of others the background's; all have the density."""
    members = Members(background, 4096)
    query, other = members.unrelated(2)
    sizes = np.bitwise_count(query).sum(), np.bitwise_count(other).sum()
    assert abs(sizes[0] / (64 * 4096) - DENSITY) < 0.01
    assert abs(2 * np.bitwise_count(query & other).sum() / sum(sizes) - background.held) < 0.02
    for row, similarity in zip(members.kin(query), background.similarities, strict=True):
        both = np.bitwise_count(query).sum() + np.bitwise_count(row).sum()
        assert abs(2 * np.bitwise_count(query & row).sum() / both - similarity) < 0.02


def test_the_cascade_finds_the_kin(tmp_path: Path) -> None:
    """Filled with a thousand models, every stage proposes the kin of a query, nearest first."""
    kin = simulated(SPARSE, 1000, 5)
    cascade = Cascade(kin, tmp_path)
    cascade.fill()
    for query in range(5):
        nearest = kin.near[query, -1]
        assert nearest == cascade.by_values(query)[0]
        assert kin.near[query, ::-1].tolist() == cascade.by_sketches(query)[:NEAR].tolist()
        assert np.isin(kin.near[query], cascade.proposed(query)).all()
    assert len(kin.near[0]) == len(Supports(100).overlap(kin.near[0]))
    cascade.close()


def test_a_peer_finds_the_kin() -> None:
    """datasketch, asked as it is timed, answers the kin that its buckets hold, best first."""
    kin = simulated(SPARSE, 500, 3)
    peer = Datasketch(kin.values, 128, 2)
    peer.fill()
    for query, values in enumerate(kin.queries):
        found = peer.ask(peer.question(values))
        assert kin.near[query, -1] == found[0]
        assert set(kin.near[query, 4:]) <= set(found)


def test_candidates_are_ranked_by_all_values() -> None:
    """Of what is proposed, the ten with most equal values, in that order."""
    rng = np.random.default_rng(0)
    values, query = rng.integers(0, 4, (40, 64), np.uint32), rng.integers(0, 4, 64, np.uint32)
    equal, proposed = (values == query).sum(axis=1), np.arange(5, 30)
    expected = proposed[np.argsort(-equal[proposed], kind="stable")][:10]
    assert expected.tolist() == ranked(values, proposed, query).tolist()
