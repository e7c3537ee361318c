"""The similarities of a space as a background, and the weights that are made against it."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelkin.core.kernels.choice import kernels
from modelkin.core.kinship import donors
from modelkin.core.similarity.background import Background, similarities_of_matches
from modelkin.core.support import Support
from modelkin.errors import InvalidParameter

SIMILARITIES = st.lists(st.floats(0, 1), min_size=1, max_size=30)


def test_bytes_tell_the_similarity() -> None:
    """Equal lowest bytes estimate S without bias, within the stated errors."""
    rng = np.random.default_rng(3)
    m, k, h = 40_000, 3_000, 256
    target = rng.permutation(m)[:k]
    estimates, errors, truths = [], [], []
    for share in np.linspace(0, 1, 60):
        kept = target[: int(share * k)]
        rest = rng.choice(
            np.setdiff1d(np.arange(m), target, assume_unique=True), k - kept.size, replace=False
        )
        seed = int(rng.integers(2**32))
        pair = [np.sort(indices) for indices in (target, np.concatenate([kept, rest]))]
        rows = [Support.from_indices(i, m).signature(h, seed).values for i in pair]
        low = [row.astype(np.uint8) for row in rows]
        estimate, error = similarities_of_matches(kernels().match_counts(low[1][None], low[0]), h)
        estimates.append(estimate[0])
        errors.append(error[0])
        truths.append(kept.size / k)
    z = (np.array(estimates) - truths) / errors
    assert abs(z.mean()) < 0.4
    assert (np.abs(z) < 4).all()


def test_the_noise_of_signatures_is_no_spread() -> None:
    """The result is the spread of the models, without that of their estimates."""
    rng = np.random.default_rng(0)
    truth, error = rng.normal(0.4, 0.05, 5_000), 0.05
    seen = truth + rng.normal(0, error, truth.size)
    for of in (Background.of, Background.robust):
        background = of(seen, np.full(truth.size, error), np.ones(truth.size, np.int64))
        assert pytest.approx(0.4, abs=0.005) == background.mean
        assert pytest.approx(0.05, rel=0.06) == background.deviation
        assert truth.size == background.models


def test_kin_do_not_move_a_robust_background() -> None:
    """A third of kin leaves the middle and the spread of the others as they are."""
    rng = np.random.default_rng(1)
    others, kin = rng.normal(0.1, 0.02, 1_000), np.full(300, 0.8)
    everyone = np.concatenate([others, kin])
    once = np.ones(everyone.size, np.int64)
    background = Background.robust(everyone, np.zeros(everyone.size), once)
    assert pytest.approx(0.1, abs=0.02) == background.mean
    assert 0.04 > background.deviation
    z = background.z_score(0.8)
    assert z is not None
    assert 15 < z


@pytest.mark.parametrize("similarities", [[], [0.3], [0.5] * 9, [0.3] * 7])
def test_no_spread_gives_no_z_score(similarities: list[float]) -> None:
    """Where models do not differ, or there is none, nothing has a z-score."""
    values = np.array(similarities)
    for of in (Background.of, Background.robust):
        once = np.ones(values.size, np.int64)
        assert of(values, np.zeros(values.size), once).z_score(0.5) is None


@given(
    counts=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 5)), min_size=1, max_size=20).filter(
        lambda counts: any(models for _, models in counts)
    )
)
def test_counted_values_are_repeated_ones(counts: list[tuple[float, int]]) -> None:
    """Mean, deviation and median of values with their counts are numpy's of all of them."""
    values, models = np.array([c[0] for c in counts]), np.array([c[1] for c in counts])
    everyone, exact = np.repeat(values, models), np.zeros(values.size)
    plain = Background.of(values, exact, models)
    robust = Background.robust(values, exact, models)
    assert everyone.mean() == pytest.approx(plain.mean)
    assert everyone.std() == pytest.approx(plain.deviation, abs=1e-5)
    assert np.median(everyone) == pytest.approx(robust.mean)
    spread = np.median(np.abs(everyone - np.median(everyone)))
    assert 1.4826 * spread == pytest.approx(robust.deviation, abs=1e-5)
    assert everyone.size == plain.models == robust.models


@given(similarities=SIMILARITIES, deviation=st.floats(1e-6, 10))
def test_zscore_weights_sum_to_one(similarities: list[float], deviation: float) -> None:
    """Any spread gives weights of sum 1, the more similar never the lighter, and never a NaN."""
    weights = donors.zscore_weights(similarities, deviation)
    assert pytest.approx(1.0) == weights.sum()
    assert (np.diff(weights[np.argsort(similarities)]) >= 0).all()


@given(similarities=st.lists(st.floats(0.2, 0.8), min_size=2, max_size=9))
def test_zscore_weights_are_the_exponentials_of_z(similarities: list[float]) -> None:
    """They are exp(z) shared out, whatever mean the z-scores are taken from."""
    z = (np.array(similarities) - 0.37) / 0.11
    expected = np.exp(z) / np.exp(z).sum()
    assert expected.tolist() == pytest.approx(donors.zscore_weights(similarities, 0.11).tolist())


@pytest.mark.parametrize("deviation", [0.0, 1e-300, 0.01, 0.05])
def test_a_hair_does_not_decide(deviation: float) -> None:
    """A spread below 0.05 counts as 0.05: donors that are nearly alike weigh nearly the same."""
    expected = np.exp([0.0, -0.2]) / np.exp([0.0, -0.2]).sum()
    assert expected.tolist() == pytest.approx(donors.zscore_weights([0.6, 0.59], deviation))
    assert [] == donors.zscore_weights([], deviation).tolist()


@pytest.mark.parametrize("wrong", [-0.1, float("nan"), float("inf")])
def test_what_is_no_deviation(wrong: float) -> None:
    """A spread is a number that is not negative."""
    with pytest.raises(InvalidParameter, match="deviation"):
        donors.zscore_weights([0.5], wrong)


def unrelated(similarities: Iterable[float], error: float = 0.0) -> Background:
    """The background of unrelated models among these."""
    values = np.array(list(similarities))
    once = np.ones(values.size, np.int64)
    return Background.of_unrelated(values, np.full(values.size, error), once)


@pytest.mark.parametrize("share", [0.5, 0.8, 0.89])
@pytest.mark.parametrize("spread", [0.0, 0.05, 0.1])
def test_the_lower_of_two_populations_is_the_background(share: float, spread: float) -> None:
    """Kin may be most of the models, and differ: the strangers among them are the background."""
    for seed in range(40):
        rng = np.random.default_rng(seed)
        kin = round(200 * share)
        near = np.clip(rng.normal(0.65, spread, kin), 0.4, 1)
        found = unrelated([*near, *rng.normal(0.15, 0.01, 200 - kin)])
        assert 200 - kin == found.models
        assert pytest.approx(0.15, abs=0.01) == found.mean
        assert 0.23 > found.limit


def test_three_populations_have_the_lowest() -> None:
    """Close kin, distant kin and strangers: the strangers are the background."""
    rng = np.random.default_rng(0)
    levels = [rng.normal(mean, 0.02, 30) for mean in (0.8, 0.45, 0.1)]
    found = unrelated(np.concatenate(levels))
    assert 30 == found.models
    assert pytest.approx(0.1, abs=0.02) == found.mean


@pytest.mark.parametrize("shape", ["normal", "uniform", "skewed", "noise"])
def test_one_population_is_not_cut(shape: str) -> None:
    """However it is spread, the background is that of all models, but for a rare gap in a draw."""
    whole = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        values, error = {
            "normal": (rng.normal(0.4, 0.1, 40), 0.0),
            "uniform": (rng.uniform(0.1, 0.8, 40), 0.0),
            "skewed": (0.1 + rng.gamma(4, 0.02, 40), 0.0),
            "noise": (rng.normal(0.2, 0.08, 40), 0.08),
        }[shape]
        whole += 40 == unrelated(np.clip(values, 0, 1), error).models
    assert whole >= 85


def test_outliers_are_no_lower_population() -> None:
    """Fewer than three models, or than a tenth, do not make a background."""
    rng = np.random.default_rng(0)
    alike = rng.normal(0.5, 0.02, 60)
    assert 62 == unrelated([*alike, 0.01, 0.02]).models
    assert 65 == unrelated([*alike, *[0.01] * 5]).models
    assert 8 == unrelated([*alike, *[0.01] * 8]).models
