"""Noise on fingerprints: its size by the mechanism's definition, and what a canary shows."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from modelkin.core.privacy.gaussian import gaussian_sigma
from modelkin.core.subspaces.fit import fit_subspace
from modelkin.core.subspaces.noise import noisy_moment, without_noise
from modelkin.errors import InvalidParameter

Floats = npt.NDArray[np.float64]

DELTA = 1e-5


def delta_of(sigma: float, epsilon: float) -> float:
    """Balle and Wang (2018), Theorem 8, for a sensitivity of 1, by scipy's normal distribution."""
    return float(
        norm.cdf(0.5 / sigma - epsilon * sigma)
        - math.exp(epsilon) * norm.cdf(-0.5 / sigma - epsilon * sigma)
    )


@given(st.floats(0.01, 50.0), st.sampled_from([1e-9, 1e-5, 1e-2]))
def test_noise_is_the_least_that_keeps_the_claim(epsilon: float, delta: float) -> None:
    """The delta of this sigma is the claimed one, and a thousandth less would break the claim."""
    sigma = gaussian_sigma(epsilon, delta)
    assert delta_of(sigma * (1 + 1e-9), epsilon) <= delta * (1 + 1e-6)
    assert delta_of(sigma * 0.999, epsilon) > delta


@given(st.floats(0.05, 0.9), st.sampled_from([1e-9, 1e-5]))
def test_noise_is_below_that_of_the_classical_bound(epsilon: float, delta: float) -> None:
    """Dwork and Roth's sigma, ``sqrt(2 ln(1.25/delta)) / epsilon``, holds below 1 and is larger."""
    assert gaussian_sigma(epsilon, delta) < math.sqrt(2 * math.log(1.25 / delta)) / epsilon


def test_noise_is_symmetric_and_has_its_size() -> None:
    """In Frobenius norm, entries off the diagonal count twice and have half the variance."""
    noise = noisy_moment(np.zeros((0, 200)), 3.0, np.random.default_rng(0))
    assert (noise == noise.T).all()
    above = noise[np.triu_indices(200, 1)]
    assert abs(3.0 - math.sqrt(2.0) * above.std()) < 0.05
    assert abs(3.0 - np.diag(noise).std()) < 0.5
    assert abs(above.mean()) < 0.1


def test_noise_has_its_size_along_every_direction() -> None:
    """``u @ noise @ u`` has sigma whatever u is, so no direction of a canary is covered less."""
    rng = np.random.default_rng(0)
    noise = np.stack([noisy_moment(np.zeros((0, 5)), 3.0, rng) for _ in range(20_000)])
    for direction in (np.eye(5)[0], np.ones(5) / math.sqrt(5.0), unit(rng.normal(size=5))):
        assert abs(3.0 - (noise @ direction @ direction).std()) < 0.06


def unit(vector: Floats) -> Floats:
    """The vector, of length 1."""
    return vector / float(np.linalg.norm(vector))


def test_one_sample_moves_the_moment_by_one_at_most() -> None:
    """In Frobenius norm, the sensitivity that the noise is made for."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        rows = rng.normal(size=(30, 6))
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        silent = np.random.default_rng(1)
        change = noisy_moment(rows, 0.0, silent) - noisy_moment(rows[1:], 0.0, silent)
        assert np.linalg.norm(change) <= 1 + 1e-12


def test_energies_are_those_of_the_samples() -> None:
    """What the samples have along the noisy directions, on average over draws; noise alone is cut.

    The samples have two directions that stand out of the noise and one that does not.
    """
    rng = np.random.default_rng(0)
    size, sigma = 150, 3.0
    energy = np.zeros(size)
    energy[:3] = [300.0, 120.0, 20.0]
    rows = np.diag(np.sqrt(energy))
    own, found = [], []
    for _ in range(30):
        values, vectors = np.linalg.eigh(noisy_moment(rows, sigma, rng))
        vectors = vectors[:, ::-1][:, :3]
        kept = without_noise(values[::-1][:3], sigma, size)
        assert (kept[2:] < 20.0).all()
        found.append(kept[:2])
        own.append((vectors**2 * energy[:, None]).sum(axis=0)[:2])
    assert np.allclose(np.mean(own, axis=0), np.mean(found, axis=0), rtol=0.03)


def test_of_noise_alone_one_direction_is_left() -> None:
    """So a declared class that no sample has is named like the others, and hardly counts."""
    noise = noisy_moment(np.zeros((0, 150)), 3.0, np.random.default_rng(0))
    energies: Floats = np.linalg.eigvalsh(noise).astype(np.float64)[::-1][:5]
    assert without_noise(energies, 3.0, 150).tolist() == [energies[0] / 100]


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0])
def test_a_canary_shows_less_than_the_claim(epsilon: float) -> None:
    """An attacker who knows all other samples, and the canary, tests for it along its direction.

    The best test against one direction of Gaussian noise is a threshold. Its rates over 20,000
    moments bound epsilon from below by ``ln((tpr - delta) / fpr)``, at 99.9% confidence.
    """
    rng = np.random.default_rng(3)
    others = rng.normal(size=(10, 3))
    others /= np.linalg.norm(others, axis=1, keepdims=True)
    canary = unit(np.array([2.0, -1.0, 1.0]))
    both = np.concatenate([others, canary[None]])
    sigma, runs = gaussian_sigma(epsilon, DELTA), 20_000
    expected = others.T @ others
    without, within = (
        np.array(
            [canary @ (noisy_moment(rows, sigma, rng) - expected) @ canary for _ in range(runs)]
        )
        for rows in (others, both)
    )
    seen = [
        _claim(without, within, threshold, runs) for threshold in np.linspace(-2, 3, 41) * sigma
    ]
    assert 0 < max(seen) < epsilon


def _claim(without: Floats, within: Floats, threshold: float, runs: int) -> float:
    """A lower bound of epsilon from the rates of a threshold test, with Hoeffding's margin."""
    margin = math.sqrt(math.log(1000) / (2 * runs))
    found, wrong = (within > threshold).mean() - margin, (without > threshold).mean() + margin
    return math.log((found - DELTA) / float(wrong)) if found > DELTA else 0.0


def test_a_noisy_fingerprint_says_its_epsilon() -> None:
    """Also after its way through the wire format; one without noise says nothing."""
    x = np.random.default_rng(0).normal(size=(500, 8))
    noisy = fit_subspace(x, epsilon=8.0, rng=np.random.default_rng(1))
    assert noisy.epsilon == 8.0
    assert noisy.delta == pytest.approx(1e-5)
    sent = type(noisy).from_bytes(noisy.to_bytes())
    assert (sent.epsilon, sent.delta) == (noisy.epsilon, noisy.delta)
    assert fit_subspace(x).epsilon is None


def test_noise_differs_each_time_unless_it_is_seeded() -> None:
    """The system's entropy is the default."""
    x = np.random.default_rng(0).normal(size=(500, 8))
    assert fit_subspace(x, epsilon=1.0) != fit_subspace(x, epsilon=1.0)
    first, second = (fit_subspace(x, epsilon=1.0, rng=np.random.default_rng(7)) for _ in range(2))
    assert first == second


def test_which_classes_occur_does_not_show() -> None:
    """A declared class without samples has directions of noise, like one with few."""
    x = np.random.default_rng(0).normal(size=(500, 8))
    labels = np.zeros(500, np.int64)
    found = fit_subspace(x, labels, epsilon=2.0, classes=range(4), rng=np.random.default_rng(0))
    assert found.labels == (0, 1, 2, 3)


def test_noise_that_leaves_nothing_is_an_error() -> None:
    """It says what to raise."""
    x = np.random.default_rng(0).normal(size=(1, 2))
    seeds = range(40)
    refused = 0
    for seed in seeds:
        try:
            fit_subspace(x, epsilon=0.01, constant=0.0, rng=np.random.default_rng(seed))
        except InvalidParameter as error:
            refused += "raise epsilon" in str(error)
    assert 0 < refused < len(seeds)
