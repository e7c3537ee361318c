"""Lineages over HTTP where most models are kin, and where kappa or differences decide."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx
import numpy as np
import numpy.typing as npt
import pytest

from modelkin import Support
from tests.support.fixtures import on_one_database
from tests.support.http_space import Space, ok, random_support, related

pytestmark = on_one_database

SHAPES = {"a.embed": (100, 40), "b.hidden": (60, 50), "c.out": (40, 50), "d.norm": (1000,)}
SCALES = {"a.embed": 0.3, "b.hidden": 0.5, "c.out": 0.7, "d.norm": 1.0}
M, K = 10_000, 500

Weights = Mapping[str, npt.NDArray[np.float64]]


def space_of(http: httpx.Client, kind: str | None = "weight") -> Space:
    """A space of these tensors; ``kind`` is that of its importance."""
    layout = [{"name": name, "shape": list(shape)} for name, shape in SHAPES.items()]
    stated = {} if kind is None else {"importance": {"kind": kind}}
    return Space(http, M, layout=layout, **stated)


def trained(rng: np.random.Generator) -> Weights:
    """A model of its own."""
    return {name: rng.normal(0, SCALES[name], shape) for name, shape in SHAPES.items()}


def tuned(rng: np.random.Generator, base: Weights, by: float = 0.2) -> Weights:
    """A fine-tune: every weight moves by a part of its tensor's scale."""
    return {name: w + rng.normal(0, by * SCALES[name], w.shape) for name, w in base.items()}


def support(weights: Weights) -> Support:
    """The 5% of largest magnitude."""
    flat = np.concatenate([np.abs(weights[name]).ravel() for name in sorted(weights)])
    return Support.from_indices(np.sort(np.argsort(-flat)[:K]), M)


def declare(space: Space, model: str, base: str | None) -> None:
    ok(space.http.patch(space.path("models", model), json={"base_model": base}))


def lineage(space: Space, model: str) -> dict[str, Any]:
    return ok(space.http.get(space.path("lineage"), params={"model": model}))


def test_fine_tunes_of_three_bases_are_consistent(http: httpx.Client) -> None:
    """With strangers beside them: kappa confirms each true base and contradicts each wrong one."""
    rng, space = np.random.default_rng(5), space_of(http)
    bases = [trained(rng) for _ in range(3)]
    models = {f"base-{b}": support(base) for b, base in enumerate(bases)}
    own_base = {f"tuned-{b}-{n}": f"base-{b}" for b in range(3) for n in range(4)}
    models |= {name: support(tuned(rng, bases[int(name[6])])) for name in own_base}
    models |= {f"stranger-{n}": support(trained(rng)) for n in range(3)}
    space.put_all(models, {name: {"base_model": base} for name, base in own_base.items()})
    for model in (f"tuned-{b}-{n}" for b in range(3) for n in range(4)):
        own = f"base-{model[6]}"
        assert own == space.neighbors(model, k=1)["items"][0]["model"]
        found = lineage(space, model)
        assert ("consistent", "kappa", None) == (
            found["verdict"],
            found["reason"],
            found["likely_base"],
        )
        assert f"kappa = {found['base']['kappa']:.2f}" in found["summary"]
    for b in range(3):
        model, own, other = f"tuned-{b}-0", f"base-{b}", f"base-{(b + 1) % 3}"
        declare(space, model, other)
        wrong = lineage(space, model)
        assert ("mismatch", "chance", own) == (
            wrong["verdict"],
            wrong["reason"],
            wrong["likely_base"],
        )
        assert abs(wrong["base"]["kappa"]) < 0.1
        assert f"kappa = {wrong['base']['kappa']:.2f}" in wrong["summary"]
        assert (False, True) == (wrong["base"]["stands_out"], wrong["kin"][0]["stands_out"])


def test_kappa_needs_no_other_models(http: httpx.Client) -> None:
    """Two models are enough where chance by tensor is known; without it they are too few."""
    rng = np.random.default_rng(6)
    base = trained(rng)
    models = {"base": base, "tuned": tuned(rng, base), "stranger": trained(rng)}
    for kind, expected in (("weight", ("kappa", "chance")), ("fisher", ("few", "few"))):
        space = space_of(http, kind)
        space.put_all({name: support(weights) for name, weights in models.items()})
        for model, reason in zip(("tuned", "stranger"), expected, strict=True):
            declare(space, model, "base")
            assert reason == lineage(space, model)["reason"]


def test_gradients_share_a_floor(http: httpx.Client) -> None:
    """Unrelated gradients are far beyond chance, so the space decides, and not kappa."""
    rng, space = np.random.default_rng(11), space_of(http, "fisher")
    common = random_support(rng, M, K)
    supports = {f"far-{n}": related(rng, common, 0.7) for n in range(10)}
    supports["base"] = related(rng, common, 0.7)
    supports["tuned"] = related(rng, supports["base"], 0.85)
    space.put_all(supports)
    for declared, verdict in (("base", "consistent"), ("far-3", "mismatch")):
        declare(space, "tuned", declared)
        found = lineage(space, "tuned")
        assert (verdict, declared == "base") == (found["verdict"], found["base"]["stands_out"])
        assert found["base"]["kappa"] > 0.3


def test_a_signature_alone_goes_without_kappa(http: httpx.Client) -> None:
    """Then S decides, compared with the other models, as far as its error allows."""
    rng, space = np.random.default_rng(7), space_of(http)
    base = trained(rng)
    space.put("base", support(base))
    space.put_signature("tuned", support(tuned(rng, base)).signature())
    space.put_all({f"stranger-{n}": support(trained(rng)) for n in range(12)})
    declare(space, "tuned", "base")
    found = lineage(space, "tuned")
    assert (None, "consistent", "stands_out") == (
        found["base"]["kappa"],
        found["verdict"],
        found["reason"],
    )
    declare(space, "tuned", "stranger-1")
    found = lineage(space, "tuned")
    assert found["base"]["kappa"] is None
    assert found["verdict"] in {"mismatch", "inconclusive"}
    assert "kappa" not in found["summary"]


@pytest.mark.parametrize("others_declare", [True, False], ids=["declared", "undeclared"])
def test_two_families_have_verdicts_by_similarity_alone(space: Space, others_declare: bool) -> None:
    """A base of the other family is a mismatch, the true one is consistent, without any layout."""
    rng = np.random.default_rng(8)
    for family in "ab":
        base = random_support(rng, M, K)
        derived = {f"{family}-{n}": related(rng, base, 0.8) for n in range(14)}
        stated = {"base_model": f"{family}-base"} if others_declare else {}
        space.put_all({f"{family}-base": base, **derived}, dict.fromkeys(derived, stated))
    for model, own, other in (("a-3", "a-base", "b-base"), ("b-0", "b-base", "a-base")):
        for declared, verdict, likely in ((own, "consistent", None), (other, "mismatch", own)):
            declare(space, model, declared)
            found = lineage(space, model)
            assert (verdict, likely) == (found["verdict"], found["likely_base"])
            assert found["limit"] <= 1
        declare(space, model, own if others_declare else None)


def test_all_that_declare_a_base_are_relatives(space: Space) -> None:
    """Also those that are not among the nearest: the background is that of the strangers."""
    rng = np.random.default_rng(9)
    base = random_support(rng, M, K)
    derived = {f"tuned-{n}": related(rng, base, 0.7) for n in range(30)}
    strangers = {f"stranger-{n}": random_support(rng, M, K) for n in range(4)}
    declared = {name: {"base_model": "base"} for name in derived}
    space.put_all({"base": base, **derived, **strangers}, declared)
    found = lineage(space, "tuned-0")
    assert ("consistent", "stands_out", 4) == (
        found["verdict"],
        found["reason"],
        found["usual"]["models"],
    )


def test_differences_contradict_no_base(http: httpx.Client) -> None:
    """A space of differences shows what was tuned alike, and its lineages say so."""
    rng, space = np.random.default_rng(10), space_of(http, "delta")
    models = [trained(rng) for _ in range(8)]
    whole = enumerate([*models, tuned(rng, models[0])])
    space.put_all({f"m{n}": support(weights) for n, weights in whole})
    declare(space, "m0", "m1")
    declare(space, "m2", "elsewhere")
    expected = {"m0": ("inconclusive", "differences"), "m2": ("unknown_base", None)}
    for model, (verdict, reason) in expected.items():
        found = lineage(space, model)
        assert (verdict, reason, None) == (
            found["verdict"],
            found["reason"],
            found["likely_base"],
        )
        assert "lineage is read in a space of weights" in found["note"]
        assert "This space holds differences" in found["summary"]


def test_a_difference_from_a_base_of_another_space_is_no_unknown_base(http: httpx.Client) -> None:
    """A pushed adapter has no fingerprint, and its space does not say what it is from."""
    rng, adapters, models = np.random.default_rng(11), space_of(http, "delta"), space_of(http)
    adapters.put("adapter", support(trained(rng)))
    declare(adapters, "adapter", "acme/base-of-adapters")
    found = lineage(adapters, "adapter")
    assert ("unknown_base", None) == (found["verdict"], found["reason"])
    models.put("acme/base-of-adapters", support(trained(rng)))
    found = lineage(adapters, "adapter")
    assert ("inconclusive", "differences") == (found["verdict"], found["reason"])
    assert "differences from 'acme/base-of-adapters', the declared base" in found["summary"]


def test_near_models_of_data_are_no_lineage(http: httpx.Client) -> None:
    """In a space of gradients a near model has similar data, and no answer calls it a base."""
    rng, space = np.random.default_rng(5), space_of(http, "fisher")
    space.put_all({f"other-{n}": support(trained(rng)) for n in range(8)})
    alike = trained(rng)
    space.put("a", support(alike))
    space.put("b", support(tuned(rng, alike)))
    found = lineage(space, "a")
    assert ("undeclared", "b") == (found["verdict"], found["likely_base"])
    assert "'b' is the nearest model that stands out: its data are similar." in found["summary"]
    assert "may be the base" not in found["summary"]
    assert "lineage is read in a space of weights" in found["note"]
