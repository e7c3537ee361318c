"""Signed supports of updates, and the agreement of members, against a count by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelkin.federation.agreement import SignedSupport, agreements, twins


def support(update: list[float] | np.ndarray, share: float = 1.0) -> SignedSupport:
    """The signed support of an update from zero."""
    values = np.asarray(update, np.float64)
    return SignedSupport.of({"w": values}, {"w": np.zeros_like(values)}, share)


def by_hand(updates: np.ndarray, share: float, voters: set[int]) -> list[float]:
    """The agreement of each row, coordinate by coordinate."""
    k = max(1, int(share * updates.shape[1]))
    chosen = [set(np.argsort(-np.abs(row), kind="stable")[:k].tolist()) for row in updates]
    found = []
    for member, row in enumerate(updates):
        agreed = 0
        for at in chosen[member]:
            votes = sum(
                int(np.sign(updates[other, at]))
                for other in voters - {member}
                if at in chosen[other]
            )
            agreed += int(np.sign(votes) * np.sign(row[at]))
        found.append(agreed / k)
    return found


@given(st.integers(0, 2**32 - 1), st.integers(1, 7), st.sampled_from([0.1, 0.3, 1.0]))
def test_agreements_are_those_counted_by_hand(seed: int, members: int, share: float) -> None:
    """Each coordinate's majority of the other voters, whoever votes."""
    rng = np.random.default_rng(seed)
    updates = rng.normal(size=(members, 30)).astype(np.float32) + rng.normal(size=30)
    voters = set(np.flatnonzero(rng.random(members) < 0.7).tolist())
    supports = {member: support(row, share) for member, row in enumerate(updates)}
    found = agreements(supports, voters)
    assert by_hand(updates, share, voters) == pytest.approx(
        [found[member][0] for member in range(members)]
    )


def test_a_flipped_sign_turns_the_agreement_round() -> None:
    """An update and its negative have one support of absolute values, and opposite agreements."""
    rng = np.random.default_rng(1)
    common = rng.normal(size=1000)
    honest = {n: support(common + 0.3 * rng.normal(size=1000), 0.1) for n in range(6)}
    update = common + 0.3 * rng.normal(size=1000)
    own, turned = support(update, 0.1), support(-10 * update, 0.1)
    np.testing.assert_array_equal(own.indices, turned.indices)
    found = agreements({**honest, 8: own, 9: turned}, set(honest))
    assert found[8][0] > 0.9
    assert -found[8][0] == found[9][0]


def test_noise_is_at_chance() -> None:
    """Noise of any length has an agreement of 0, within four deviations."""
    rng = np.random.default_rng(2)
    common = rng.normal(size=5000)
    supports = {n: support(common + rng.normal(size=5000), 0.1) for n in range(6)}
    supports[9] = support(10 * rng.normal(size=5000), 0.1)
    agreement, k = agreements(supports, set(range(6)))[9]
    assert abs(agreement) < 4 / k**0.5


def test_a_signed_support_is_of_what_is_trained() -> None:
    """Running statistics and whole numbers do not count, and the largest changes are taken."""
    start: dict[str, Any] = {
        "w": np.zeros((2, 5), np.float16),
        "bn.running_var": np.zeros(50),
        "steps": np.zeros(50, np.int64),
    }
    model: dict[str, Any] = {
        "w": np.array([[0, 3, 0, -4, 0], [1, 0, 0, 0, 0]], np.float16),
        "bn.running_var": np.full(50, 99.0),
        "steps": np.full(50, 99),
    }
    found = SignedSupport.of(model, start, 0.2)
    assert (10, [1, 3], [1, -1]) == (
        found.num_parameters, found.indices.tolist(), found.signs.tolist(),
    )  # fmt: skip
    assert 26**0.5 == pytest.approx(found.length)


def test_no_change_agrees_with_nobody() -> None:
    """A member that sends back what it got has an empty support, and no agreement."""
    supports = {0: support([0.0, 0.0]), 1: support([1.0, -1.0])}
    assert {0: (0.0, 0), 1: (0.0, 2)} == agreements(supports, {0, 1})


def test_a_change_beyond_float32_counts_as_the_largest() -> None:
    """Values that float32 cannot hold are still the largest, with their sign."""
    found = support([1.0, -1e300, 2.0], 0.34)
    assert ([1], [-1]) == (found.indices.tolist(), found.signs.tolist())


def test_copies_do_not_vote_about_each_other() -> None:
    """Three who send nearly the same noise are at chance; most members may be alike."""
    rng = np.random.default_rng(3)
    common, noise = rng.normal(size=(2, 5000))
    supports = {n: support(common + rng.normal(size=5000), 0.1) for n in range(8)}
    supports |= {n: support(noise + 0.01 * rng.normal(size=5000), 0.1) for n in (8, 9, 10)}
    copies = twins(supports)
    assert [set[int]()] * 8 + [{9, 10}, {8, 10}, {8, 9}] == [copies[n] for n in range(11)]
    assert all(agreements(supports, set(supports))[n][0] > 0.5 for n in (8, 9, 10))
    found = agreements(supports, set(supports), copies)
    assert all(abs(found[n][0]) < 4 / 500**0.5 for n in (8, 9, 10))
    equal = {n: support(common, 0.1) for n in range(5)}
    assert all(
        agreement == 1.0 for agreement, _ in agreements(equal, set(equal), twins(equal)).values()
    )
