"""What private supports spend together, and where a budget ends."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modelkin import InvalidInput, PrivacyAccount, PrivacyBudgetExceeded
from modelkin.core.privacy.gaussian import gaussian_sigma

DELTA = 1e-6


def kairouz(epsilons: list[float], slack: float) -> float:
    """Advanced composition (Kairouz, Oh and Viswanath 2015, Theorem 3.5, third bound)."""
    drift = sum((math.exp(e) - 1) * e / (math.exp(e) + 1) for e in epsilons)
    return drift + math.sqrt(2 * sum(e * e for e in epsilons) * math.log(1 / slack))


@settings(max_examples=30)
@given(st.lists(st.floats(0.05, 8.0), min_size=1, max_size=8))
def test_it_never_counts_more_than_basic_and_advanced_composition(epsilons: list[float]) -> None:
    """At the delta that these two have, exact composition is at most the less of both."""
    slack = 1e-6
    delta = len(epsilons) * DELTA + slack
    account = PrivacyAccount(100.0, delta, tuple((e, DELTA) for e in epsilons))
    assert account.epsilon_spent <= sum(epsilons) * (1 + 1e-6)
    assert account.epsilon_spent <= kairouz(epsilons, slack) * (1 + 1e-6)


@given(st.floats(0.01, 100.0), st.sampled_from([1e-9, 1e-5, 0.01]))
def test_one_support_spends_what_it_claims(epsilon: float, delta: float) -> None:
    """At its own delta; so a budget has room for one support of the same numbers."""
    account = PrivacyAccount(epsilon, delta).spend(epsilon, delta)
    assert account.epsilon_spent == pytest.approx(epsilon, rel=1e-6)


def test_four_supports_are_one_of_half_the_noise() -> None:
    """Independent noise of sigma, four times, shows what one noise of half of it shows."""
    account = PrivacyAccount(100.0, 1e-5, ((2.0, 1e-5),) * 4)
    sigma = gaussian_sigma(account.epsilon_spent, 1e-5)
    assert sigma == pytest.approx(gaussian_sigma(2.0, 1e-5) / 2, rel=1e-6)


def test_a_budget_that_is_used_up_is_an_error() -> None:
    """It says how much all would spend, and leaves the account as it was."""
    account = PrivacyAccount(25.0, 1e-5).spend(20.0, 1e-6)
    with pytest.raises(PrivacyBudgetExceeded, match=r"2 private supports .* budget is 25"):
        account.spend(20.0, 1e-6)
    assert ((20.0, 1e-6),) == account.spent
    assert 2 == len(account.spend(5.0, 1e-6).spent)
    assert 0.0 == PrivacyAccount(30.0, 1e-5).epsilon_spent


@pytest.mark.parametrize(("epsilon", "delta"), [(0, 1e-5), (-1, 1e-5), (101, 1e-5), (1, 0), (1, 1)])
def test_wrong_numbers_are_refused(epsilon: float, delta: float) -> None:
    """Of a budget and of a support alike."""
    with pytest.raises(InvalidInput, match="must be above 0"):
        PrivacyAccount(epsilon, delta)
    with pytest.raises(InvalidInput, match="must be above 0"):
        PrivacyAccount(50.0, 1e-5).spend(epsilon, delta)


def test_an_account_goes_through_json() -> None:
    """As an attribute of a model; None where a model has none; a broken one is an error."""
    account = PrivacyAccount(30.0, 1e-5).spend(2.0, 1e-6).spend(3.0, 1e-7)
    stored = json.loads(json.dumps({"privacy": account.to_attribute(), "epochs": 3}))
    assert account == PrivacyAccount.of_attributes(stored)
    assert PrivacyAccount.of_attributes({"epochs": 3}) is None
    for broken in (
        {},
        "much",
        {"epsilon": 1, "delta": 2, "spent": []},
        {**stored["privacy"], "spent": [1]},
    ):
        with pytest.raises(InvalidInput, match="not a PrivacyAccount"):
            PrivacyAccount.of_attributes({"privacy": broken})
