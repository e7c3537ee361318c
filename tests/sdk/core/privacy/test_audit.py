"""An attack on private supports: what it shows of one sample stays below the claim.

The attacker knows all other samples and the canary, and asks whether the canary is among them. It
counts how many of the canary's parameters the support has; the best test on that is a threshold.
Rates of 1,000 neighbouring pairs bound epsilon from below (Clopper and Pearson, 95% for both):
``epsilon >= ln((TPR - delta) / FPR)``. A Gaussian mechanism has one more number, mu = 1 / sigma,
and the rates bound that one too (Nasr et al., "Tight auditing of differentially private machine
learning", USENIX Security 2023), which finds more where delta is small.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import beta, norm

from modelkin import private_support
from modelkin.core.privacy import top_k
from modelkin.core.privacy.gaussian import gaussian_sigma

PAIRS = 1_000
M, K, VOTES = 1_600, 800, 100
CANARY = np.arange(VOTES)
Counts = npt.NDArray[np.int64]
Claim = tuple[float, float]


def seen(canary: bool, claim: Claim, pairs: int, first_seed: int = 0) -> Counts:
    """How many of the canary's parameters each of so many private supports has."""
    others = np.full(M, 50)
    others[CANARY] += canary
    seeds = first_seed + 2 * np.arange(pairs) + canary
    supports = (
        private_support(others, K, *claim, VOTES**0.5, seed=seed) for seed in seeds.tolist()
    )
    return np.array([int(np.searchsorted(support.indices, VOTES)) for support in supports])


def at_most(hits: int) -> float:
    """The 97.5% upper limit of the rate of so many of all pairs (Clopper and Pearson)."""
    return float(beta.ppf(0.975, hits + 1, PAIRS - hits)) if hits < PAIRS else 1.0


def bounds(claim: Claim) -> tuple[float, float]:
    """Lower bounds of epsilon and of mu; thresholds are from a run of their own."""
    before, after = (seen(canary, claim, PAIRS // 5, 1 << 40) for canary in (False, True))
    high, middle = before.mean() + 2 * before.std(), (before.mean() + after.mean()) / 2
    without, within = (seen(canary, claim, PAIRS) for canary in (False, True))
    wrong, missed = at_most(int((without > high).sum())), at_most(int((within <= high).sum()))
    shown = 1 - missed - claim[1]
    epsilon = math.log(shown / wrong) if shown > 0 else 0.0
    wrong, missed = at_most(int((without > middle).sum())), at_most(int((within <= middle).sum()))
    return epsilon, float(norm.ppf(1 - wrong) - norm.ppf(missed))


@pytest.mark.slow
@pytest.mark.parametrize("claim", [(1.0, 0.05), (10.0, 1e-5)])
def test_an_attack_shows_less_than_the_claim(claim: Claim) -> None:
    """Over 1,000 neighbouring pairs neither bound passes the claim, and the attack sees a trace."""
    epsilon, mu = bounds(claim)
    assert epsilon < claim[0]
    assert 0 < mu < 1 / gaussian_sigma(*claim)


@pytest.mark.slow
@pytest.mark.parametrize(("share", "claim"), [(0.5, (1.0, 0.05)), (1e-9, (10.0, 1e-5))])
def test_the_audit_fails_where_noise_is_missing(
    share: float, claim: Claim, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of the noise, or none, passes the claim: the audit can fail."""
    monkeypatch.setattr(top_k, "gaussian_sigma", lambda *asked: share * gaussian_sigma(*asked))
    epsilon, mu = bounds(claim)
    assert mu > 1 / gaussian_sigma(*claim)
    if share == 0.5:
        assert epsilon > claim[0]
