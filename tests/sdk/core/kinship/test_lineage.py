"""The rules that compare a declared base with measurements, on known lineages."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelkin.core.kinship.lineage import Estimate, Judgement, Rival, judge, stands_out
from modelkin.core.similarity.background import Background

M, K = 8_000, 600
UNRELATED = 12
FLAT = Background(0.1, 0.01, 40)

Members = npt.NDArray[np.bool_]
"""Whether each parameter is in a support, shape ``(M,)``."""


def child(rng: np.random.Generator, parent: Members, keeps: float) -> Members:
    """A support that keeps a share of its parent's and draws the rest from elsewhere."""
    made = np.zeros(M, np.bool_)
    made[rng.choice(np.flatnonzero(parent), round(K * keeps), replace=False)] = True
    made[rng.choice(np.flatnonzero(~made), K - int(made.sum()), replace=False)] = True
    return made


def planted(seed: int) -> dict[str, Members]:
    """root -> base -> model -> copy, base -> sibling, and a dozen unrelated models."""
    rng = np.random.default_rng(seed)
    nothing = np.zeros(M, np.bool_)
    found = {"root": child(rng, nothing, 0)}
    keeps = rng.uniform(0.6, 0.9, 4)
    for name, parent, share in zip(
        ("base", "model", "copy", "sibling"), ("root", "base", "model", "base"), keeps, strict=True
    ):
        found[name] = child(rng, found[parent], share)
    return found | {f"other-{i}": child(rng, nothing, 0) for i in range(UNRELATED)}


def measured(
    rng: np.random.Generator, a: Members, b: Members, num_perm: int | None = None
) -> Estimate:
    """S of two supports: exact, or as estimated from signatures of ``num_perm`` values."""
    shared = int((a & b).sum())
    if num_perm is None:
        return Estimate(shared / K, 0.0)
    truth = shared / (2 * K - shared)
    jaccard = rng.binomial(num_perm, truth) / num_perm
    error = 2 / (1 + jaccard) ** 2 * np.sqrt(max(jaccard * (1 - jaccard), 1 / num_perm) / num_perm)
    return Estimate(2 * jaccard / (1 + jaccard), float(error))


def judged(
    models: Mapping[str, Members],
    declared: str,
    among: tuple[str, ...],
    seed: int = 0,
    num_perm: int | None = None,
) -> Judgement:
    """The verdict for ``model`` under a declared base, where those ``among`` are undeclared."""
    rng = np.random.default_rng(seed)
    base, model = models[declared], models["model"]
    near = {name: measured(rng, models[name], model, num_perm) for name in among}
    nearest = sorted(near, key=lambda name: -near[name].similarity)
    others = [models[name] for name in models if name.startswith("other") and name != declared]
    unrelated = np.array([measured(rng, each, model).similarity for each in others])
    return judge(
        measured(rng, base, model, num_perm),
        [Rival(near[name], measured(rng, models[name], base, num_perm)) for name in nearest],
        Background.robust(unrelated, np.zeros(unrelated.size), np.ones(unrelated.size, np.int64)),
    )


@pytest.mark.parametrize("seed", range(25))
def test_a_true_base_is_consistent(seed: int) -> None:
    """Neither its base's base, nor siblings, nor undeclared copies of a model speak against its
    base; a copy nearly as far from the base as the model may leave it open, never contradict it.
    """
    models = planted(seed)
    assert "consistent" == judged(models, "base", ("root", "sibling")).verdict
    with_copy = judged(models, "base", ("root", "sibling", "copy"))
    assert with_copy.verdict in {"consistent", "inconclusive"}


@pytest.mark.parametrize("seed", range(25))
def test_a_stranger_is_a_mismatch(seed: int) -> None:
    """A declared base that is no more similar than the others is contradicted in any company."""
    models = planted(seed)
    for among in ((), ("base",), ("base", "root", "sibling", "copy")):
        assert "mismatch" == judged(models, "other-3", among).verdict


@pytest.mark.parametrize("seed", range(25))
def test_a_true_base_between_contradicts_a_declared_one(seed: int) -> None:
    """A model that declares its base's base or a sibling is a mismatch if its base is stored."""
    models = planted(seed)
    for declared in ("root", "sibling"):
        judgement = judged(models, declared, ("base",))
        nearer = (models["base"] & models["model"]).sum() / K
        farther = (models[declared] & models["model"]).sum() / K
        between = (models["base"] & models[declared]).sum() / K
        if min(nearer, between) > farther + 0.05:
            assert ("mismatch", "rival", 0) == (
                judgement.verdict,
                judgement.reason,
                judgement.rival,
            )
        else:
            assert judgement.verdict in {"consistent", "inconclusive"}


@pytest.mark.slow
@pytest.mark.parametrize("num_perm", [64, 256])
def test_estimates_never_contradict_a_true_base(num_perm: int) -> None:
    """With signatures alone a true base is at worst inconclusive, in 100 planted lineages, and a
    stranger never consistent.
    """
    true = [
        judged(planted(s), "base", ("root", "sibling", "copy"), s, num_perm) for s in range(100)
    ]
    assert "mismatch" not in {judgement.verdict for judgement in true}
    consistent = sum(judgement.verdict == "consistent" for judgement in true)
    assert consistent > (30 if num_perm == 64 else 60)
    wrong = {judged(planted(s), "other-1", ("base",), s, num_perm).verdict for s in range(50)}
    assert "consistent" not in wrong


def test_nothing_to_compare_with_is_inconclusive() -> None:
    """Two or fewer other models are not enough for a background."""
    few = Background(0.1, 0.0, 2)
    assert Judgement("inconclusive", "few") == judge(Estimate(0.9, 0.0), [], few)


def test_the_nearest_of_a_wide_background_is_consistent() -> None:
    """Where all models are kin the base cannot stand out, and being the nearest is enough."""
    wide, base = Background(0.5, 0.15, 30), Estimate(0.85, 0.0)
    behind, beside = Estimate(0.75, 0.0), Estimate(0.82, 0.0)
    assert Judgement("consistent", "nearest") == judge(base, [], wide, runner_up=behind)
    assert Judgement("inconclusive", "unclear") == judge(base, [], wide, runner_up=beside)
    assert Judgement("inconclusive", "unclear") == judge(base, [], wide)


def test_relatives_alone_are_no_reason_for_a_mismatch() -> None:
    """A base as near as others are is contradicted by strangers, and by declared kin it is not."""
    near, kin = Background(0.4, 0.05, 9), Estimate(0.45, 0.0)
    assert Judgement("mismatch", "background") == judge(kin, [], near)
    assert Judgement("inconclusive", "unclear") == judge(kin, [], near, unrelated=False)
    ahead = judge(Estimate(0.53, 0.0), [], near, runner_up=kin)
    assert Judgement("consistent", "nearest") == ahead


def test_a_wide_error_is_unclear() -> None:
    """An estimate on both sides of the limit does not show whether a model stands out."""
    assert stands_out(Estimate(0.2, 0.001), FLAT) is True
    assert stands_out(Estimate(0.12, 0.001), FLAT) is False
    assert stands_out(Estimate(0.16, 0.05), FLAT) is None


@given(
    base=st.floats(0, 1),
    error=st.floats(0, 0.2),
    others=st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1), st.floats(0, 0.2)), max_size=5),
)
def test_a_judgement_names_a_rival_that_is_nearer(
    base: float, error: float, others: list[tuple[float, float, float]]
) -> None:
    """A named rival is more similar to the model than the base is, by more than 0.05."""
    rivals = [Rival(Estimate(s, e), Estimate(b, e)) for s, b, e in others]
    judgement = judge(Estimate(base, error), rivals, FLAT)
    if judgement.rival is not None:
        assert rivals[judgement.rival].to_model.similarity > base + 0.05


WEIGHTS = Background(0.15, 0.02, 40)


@pytest.mark.parametrize("models", [0, 40])
def test_kappa_decides_first(models: int) -> None:
    """At chance a base is contradicted, and far beyond it is kin, whatever the space says."""
    wide = Background(0.6, 0.3, models)
    assert Judgement("mismatch", "chance") == judge(Estimate(0.9, 0.0, 0.09), [], wide)
    assert Judgement("consistent", "kappa") == judge(Estimate(0.1, 0.0, 0.3), [], wide)
    assert stands_out(Estimate(0.9, 0.0, 0.09), wide) is False
    assert stands_out(Estimate(0.1, 0.0, 0.3), wide) is True


@pytest.mark.parametrize("kappa", [0.1, 0.2, 0.29])
def test_a_kappa_between_speaks_for_a_base_or_is_open(kappa: float) -> None:
    """From .1 to .3 the space may confirm a base, and not contradict it: it is no stranger."""
    near, far = Estimate(0.5, 0.0, kappa), Estimate(0.2, 0.0, kappa)
    assert Judgement("consistent", "stands_out") == judge(near, [], WEIGHTS)
    assert Judgement("inconclusive", "unclear") == judge(far, [], WEIGHTS)
    wide, behind = Background(0.5, 0.15, 30), Estimate(0.1, 0.0)
    nearest = Estimate(0.85, 0.0, kappa)
    assert Judgement("inconclusive", "unclear") == judge(nearest, [], wide, runner_up=behind)


def test_without_a_kappa_the_space_decides() -> None:
    """A base without a kappa is compared with unrelated models, either way."""
    for similarity, verdict in ((0.5, "consistent"), (0.2, "mismatch")):
        assert verdict == judge(Estimate(similarity, 0.0), [], WEIGHTS).verdict


def test_an_estimate_is_at_chance_beyond_its_error() -> None:
    """An error that leaves kappa on both sides of a limit does not decide."""
    assert "chance" == judge(Estimate(0.17, 0.01, 0.03), [], WEIGHTS).reason
    assert "chance" != judge(Estimate(0.17, 0.04, 0.03), [], WEIGHTS).reason
    assert "kappa" == judge(Estimate(0.5, 0.01, 0.4), [], WEIGHTS).reason
    assert "kappa" != judge(Estimate(0.5, 0.05, 0.4), [], WEIGHTS).reason


def test_kin_beyond_chance_may_still_have_a_rival() -> None:
    """A model that lies between contradicts a base that is kin too; one at chance does not."""
    base = Estimate(0.5, 0.0, 0.4)
    between = Rival(Estimate(0.9, 0.0, 0.88), Estimate(0.6, 0.0, 0.5))
    assert Judgement("mismatch", "rival", 0) == judge(base, [between], WEIGHTS)
    by_chance = Rival(Estimate(0.9, 0.0, 0.05), Estimate(0.6, 0.0, 0.5))
    assert Judgement("consistent", "kappa") == judge(base, [by_chance], WEIGHTS)


def test_a_copy_says_nothing_against_a_base() -> None:
    """A silent file of 16 bits is as near to the base as the model is; a fine-tune is no copy."""
    base = Estimate(0.86, 0.0, 0.85)
    copy, tuned = (Rival(Estimate(s, 0.0, s), base) for s in (0.995, 0.95))
    assert Judgement("consistent", "kappa") == judge(base, [copy], WEIGHTS)
    assert Judgement("inconclusive", "doubt", 1) == judge(base, [copy, tuned], WEIGHTS)
    unsure = Rival(Estimate(0.995, 0.01), base)
    assert Judgement("inconclusive", "doubt", 0) == judge(base, [unsure], WEIGHTS)


@given(similarity=st.floats(0, 1), nearest=st.floats(0, 1), mean=st.floats(0, 1))
def test_the_nearest_is_no_stranger(similarity: float, nearest: float, mean: float) -> None:
    """A base within .05 of the nearest model is never held to be unrelated."""
    base, other = Estimate(min(similarity, nearest), 0.0), Estimate(nearest, 0.0)
    judgement = judge(base, [], Background(mean, 0.02, 40), runner_up=other)
    if nearest - base.similarity <= 0.05:
        assert judgement.reason not in {"background", "farther"}


@given(mean=st.floats(0, 1), deviation=st.floats(0, 1))
def test_a_limit_is_a_similarity(mean: float, deviation: float) -> None:
    """However wide a background is, its limit is at most 1."""
    assert mean <= Background(mean, deviation, 9).limit <= 1


def test_a_base_far_below_a_crowd_is_a_stranger() -> None:
    """Where most models are near the model, one that is far less so is contradicted."""
    crowd, nearest = Background(0.8, 0.02, 30), Estimate(0.85, 0.0)
    for similarity, verdict in ((0.2, "mismatch"), (0.64, "mismatch"), (0.7, "inconclusive")):
        assert verdict == judge(Estimate(similarity, 0.0), [], crowd, runner_up=nearest).verdict
    kin = judge(Estimate(0.2, 0.0), [], crowd, unrelated=False, runner_up=nearest)
    assert "inconclusive" == kin.verdict
