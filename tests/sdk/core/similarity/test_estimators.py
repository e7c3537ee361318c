"""Errors of estimates: never 0, an upper bound where no trial or every trial agrees."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelkin.core.estimators import (
    jaccard_error,
    similarity_from_jaccard,
    standard_error,
    standard_errors,
)
from modelkin.core.similarity.background import similarities_of_matches
from modelkin.core.sketching.sketch import standard_error_in_sample
from modelkin.core.support import Support

TRIALS = st.integers(1, 4096)


@pytest.mark.slow
@given(h=TRIALS)
def test_no_estimate_is_certain(h: int) -> None:
    """Every count of equal values, from none to all, has an error of S and of J above 0."""
    jaccards = np.arange(h + 1) / h
    errors = standard_errors(jaccards, h)
    assert (errors > 0).all()
    assert all(0 < jaccard_error(j, h) <= 1 for j in jaccards.tolist())
    assert [standard_error(j, h) for j in jaccards.tolist()] == pytest.approx(errors.tolist())
    assert (similarities_of_matches(np.arange(h + 1), h)[1] > 0).all() or h == 1


@given(h=st.integers(4, 4096))
def test_the_ends_follow_the_rule_of_three(h: int) -> None:
    """At S = 0 and 1 the error reaches to a J of 3 / h from the end, and no farther."""
    assert standard_error(0.0, h) == pytest.approx(6 / (h + 3))
    assert standard_error(1.0, h) == pytest.approx(3 / (2 * h - 3))
    for end, j in ((0.0, 3 / h), (1.0, 1 - 3 / h)):
        assert abs(similarity_from_jaccard(j) - end) == pytest.approx(standard_error(end, h))


@given(h=st.integers(16, 4096))
def test_the_errors_near_the_ends_are_of_one_size(h: int) -> None:
    """The bound is above the error of one trial of h, by less than four times.

    From there the errors of J rise to the middle and fall as they rose.
    """
    for end, beside in ((0.0, 1 / h), (1.0, 1 - 1 / h)):
        assert 1 < standard_error(end, h) / standard_error(beside, h) < 4
    errors = [jaccard_error(j / h, h) for j in range(1, h // 2 + 1)]
    assert sorted(errors) == errors
    assert [jaccard_error(1 - j / h, h) for j in range(1, h // 2 + 1)] == pytest.approx(errors)


@given(h=TRIALS)
def test_a_larger_jaccard_would_have_shown(h: int) -> None:
    """None of h trials agrees with a probability of at most 1 in 20, if J is the bound."""
    assert (1 - jaccard_error(0.0, h)) ** h <= 0.05


def test_the_bound_holds_for_signatures() -> None:
    """Supports of J = 3 / h have no equal value in one of 20 signatures at most, over 400 seeds."""
    h, k, shared = 64, 2_000, 179  # J = 179 / 3,821 = 3 / 64
    a = Support.from_indices(range(k), 100_000)
    b = Support.from_indices(range(k - shared, 2 * k - shared), 100_000)
    pairs = [(a.signature(h, seed), b.signature(h, seed)) for seed in range(400)]
    none = [one.similarity(other) == 0 for one, other in pairs]
    assert 0 < np.mean(none) <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 400)
    missed = next(pair for pair, zero in zip(pairs, none, strict=True) if zero)
    truth = 2 * shared / (2 * k)
    assert truth <= missed[0].standard_error(missed[1]) + 1e-4
    assert missed[0].jaccard_error(missed[1]) == 3 / h


@given(ours=st.integers(0, 50), theirs=st.integers(0, 50), data=st.data())
def test_a_sample_is_never_certain(ours: int, theirs: int, data: st.DataObject) -> None:
    """However many members are shared, and even without any, the error of a sketch is above 0."""
    shared = data.draw(st.integers(0, min(ours, theirs)))
    union = ours + theirs - shared
    error = standard_error_in_sample(shared, ours, theirs)
    assert 0 < error <= 1
    if not union:
        assert error == 1
    elif shared in (0, union):
        assert error == standard_error(shared / union, union)


def test_the_bound_holds_for_sketches() -> None:
    """Two supports that share few indices: where a sample shows none, S is within the error."""
    rng = np.random.default_rng(7)
    indices = rng.permutation(400_000)[:39_200]
    a = Support.from_indices(np.sort(indices[:20_000]), 400_000)
    b = Support.from_indices(np.sort(indices[19_200:]), 400_000)  # S = .04, J = .0204
    pairs = [(a.sketch(1536, seed), b.sketch(1536, seed)) for seed in range(300)]
    none = [pair for pair in pairs if pair[0].shared(pair[1]) == 0]
    assert 0 < len(none) <= 300 * 0.05 + 3 * np.sqrt(300 * 0.05 * 0.95)
    assert np.mean([x.standard_error(y) for x, y in none]) == pytest.approx(0.04, abs=0.005)
