"""The P of a similarity between unrelated models: a bound that holds, and that tells kin."""

from __future__ import annotations

import math

import numpy as np
import pytest

from modelkin.core.estimators import similarity_from_jaccard, standard_error
from modelkin.core.kinship.nearness import Nearness
from modelkin.core.similarity.pair_chance import PairChance
from modelkin.core.similarity.strangers import (
    is_at_chance,
    log10_p,
    log10_ps,
    trials,
    trials_of,
)

SIZES = np.array([1_000.0, 9_000.0])
COUNTS = np.array([200, 100])
EXPECTED = float((COUNTS**2 / SIZES).sum() / COUNTS.sum())


@pytest.mark.parametrize("kappa", [0.0, 0.1])
def test_the_bound_holds_of_draws(kappa: float) -> None:
    """Of 5,000 pairs with a kappa of 0 and of .1, no more have a P below .05, .01 and .001."""
    rng = np.random.default_rng(3)
    kept = rng.binomial(int(COUNTS.sum()), kappa, 5_000)
    by_chance = sum(
        rng.hypergeometric(count, int(size) - count, count, 5_000)
        for count, size in zip(COUNTS, SIZES, strict=True)
    )
    shared = kept + rng.binomial(by_chance, 1.0 - kappa)
    found = np.array([log10_p(s / COUNTS.sum(), EXPECTED, (300, 300)) for s in shared.tolist()])
    for limit in (0.05, 0.01, 0.001):
        assert (found < math.log10(limit)).mean() <= limit


def test_more_in_common_is_less_likely() -> None:
    """P is at most 1, falls as S grows, rises with an error, and is the same both ways."""
    rng = np.random.default_rng(4)
    expected, similarity, more = rng.random((3, 10_000))
    similarity[:50], similarity[50:100] = 0.0, 1.0
    larger = similarity + more * (1 - similarity)
    a, b = 10.0 ** rng.uniform(0, 6, (2, 10_000))
    found = log10_ps(similarity, expected, a, b, trials(a, b))
    assert (log10_ps(larger, expected, a, b, trials(a, b)) <= found + 1e-9).all()
    assert (found <= 0).all()
    assert (found <= log10_ps(similarity, expected, a, b, trials(a, b, 256))).all()
    assert found.tolist() == log10_ps(similarity, expected, b, a, trials(b, a)).tolist()


def test_at_chance_is_not_told_from_unrelated_models() -> None:
    """A kappa below .1 has P = 1 whatever K is, and one of .12 is beyond it by a large K alone."""
    assert 0.0 == log10_p(0.14, 0.05, (10**6, 10**6))
    few, many = (log10_p(0.05 + 0.12 * 0.95, 0.05, (k, k)) for k in (100, 100_000))
    assert is_at_chance(few)
    assert not is_at_chance(many, comparisons=10**6)


@pytest.mark.parametrize("matches", [0, 40, 128, 256])
def test_an_estimate_is_worth_its_trials(matches: int) -> None:
    """The error of a signature of 256 values gives these back, also where none or all agree."""
    jaccard = matches / 256
    found = trials_of(similarity_from_jaccard(jaccard), standard_error(jaccard, 256))
    assert found == pytest.approx(256, rel=0.02)


def test_one_rule_for_a_pair_and_for_many() -> None:
    """A table of pairs has the P of each pair alone, and none of a model without counts."""
    counts = np.array([[200, 100], [200, 100], [150, 50], [0, 0]])
    table = PairChance(
        counts, SIZES, counts.sum(axis=1), np.ones(4, np.bool_), 256, int(SIZES.sum())
    )
    similarity = np.array([[0.9, 0.4, 0.5]])
    found = table.log10_ps(np.array([0]), np.array([1, 2, 3]), similarity)
    alone = Nearness.of(0.9, 0.0, EXPECTED, (300, 300), 10_000)
    assert found[0, 0] == pytest.approx(alone.log10_p)
    assert found[0, 1] < 0
    assert math.isnan(found[0, 2])
    rows = table.log10_ps_of_rows(np.array([0]), np.array([[1, 2, 3]]), similarity)
    assert rows.tolist()[0][:2] == pytest.approx(found.tolist()[0][:2])


def test_a_chance_of_one_says_nothing() -> None:
    """Supports of whole tensors have no P, and are kin by their size: they are no strangers."""
    whole = Nearness.of(1.0, 0.0, 1.0, (50, 50), 10_000)
    assert Nearness(unrelated=False, log10_p=None) == whole
    table = PairChance(
        np.array([[50, 0], [50, 0]]),
        np.array([50.0, 950.0]),
        np.full(2, 50.0),
        np.ones(2) > 0,
        256,
        1000,
    )
    rows = np.arange(2)
    assert table.is_beyond(table.log10_ps(rows, rows, np.ones((2, 2)))).all()


def test_what_is_left_out_is_no_evidence() -> None:
    """Of supports that are mostly a mask, the few indices outside of it make the P."""
    whole = Nearness.of(0.3, 0.0, 0.05, (1_000, 1_000), 10**5, shared=300)
    outside = Nearness.of(0.3, 0.0, 0.05, (1_000, 1_000), 10**5, shared=30)
    assert outside.log10_p == pytest.approx((whole.log10_p or 0.0) / 10)
