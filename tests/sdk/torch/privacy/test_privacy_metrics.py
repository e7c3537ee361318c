"""The figures of attacks are those of independent implementations."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom
from sklearn.metrics import roc_auc_score, roc_curve

from modelkin.torch.privacy.metrics import (
    auc,
    auc_error,
    binomial_tail,
    epsilon_bound,
    true_positive_rate,
)


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32 - 1), count=st.integers(4, 300), levels=st.sampled_from([3, 10**6])
)
def test_auc_and_tpr_are_those_of_scikit_learn(seed: int, count: int, levels: int) -> None:
    """With ties and without."""
    random = np.random.default_rng(seed)
    scores = random.integers(levels, size=count).astype(float)
    truth = random.random(count) < 0.5
    truth[:2] = True, False
    assert auc(scores, truth) == pytest.approx(roc_auc_score(truth, scores))
    false, true, _ = roc_curve(truth, scores, drop_intermediate=False)
    assert true_positive_rate(scores, truth) == pytest.approx(true[false <= 0.01].max())


def test_the_standard_error_is_the_spread_of_repeated_runs() -> None:
    """To a tenth, of normal scores that lie one deviation apart."""
    random = np.random.default_rng(1)
    truth = np.arange(100) < 40
    values = [auc(random.normal(truth, 1.0), truth) for _ in range(2000)]
    assert auc_error(float(np.mean(values)), 40, 60) == pytest.approx(np.std(values), rel=0.1)


@given(least=st.integers(0, 200), trials=st.integers(1, 200), chance=st.floats(0.01, 0.99))
def test_the_binomial_tail_is_that_of_scipy(least: int, trials: int, chance: float) -> None:
    """Also where it is 0 or 1."""
    expected = binom.sf(least - 1, trials, chance)
    assert binomial_tail(least, trials, chance) == pytest.approx(expected, rel=1e-9, abs=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.0, 1.0, 2.0])
def test_the_bound_on_epsilon_holds_for_randomized_response(epsilon: float) -> None:
    """The mechanism that has exactly this epsilon is refuted in one of twenty runs at most, and
    the bound comes near where it is not 0.
    """
    random = np.random.default_rng(0)
    bounds = []
    for _ in range(300):
        truth = random.random(300) < 0.5
        honest = random.random(300) < 1 / (1 + math.exp(-epsilon))
        scores = np.where(honest, truth, ~truth) + random.random(300) * 1e-3
        bounds.append(epsilon_bound(scores, truth)[0])
    assert np.mean(np.array(bounds) > epsilon) <= 0.07
    assert np.median(bounds) >= 0.6 * epsilon


def test_chance_has_a_p_value_below_a_twentieth_in_one_of_twenty_runs() -> None:
    """At most: so it is in a table whose rows leak nothing."""
    random = np.random.default_rng(0)
    found = [epsilon_bound(random.random(300), random.random(300) < 0.5)[1] for _ in range(400)]
    assert 0.02 <= np.mean(np.array(found) < 0.05) <= 0.07
