"""Lineages between chance and kin, equal bases, and the P of each verdict."""

from __future__ import annotations

from typing import Any

import httpx
import numpy as np
import pytest

from modelkin import Support
from tests.support.fixtures import on_one_database
from tests.support.http_space import Space, ok, random_support, related

pytestmark = on_one_database

M, K = 10_000, 500
LAYOUT = [{"name": "body", "shape": [M]}]
UNRELATED = "no nearer than unrelated"


def space_of(http: httpx.Client, kind: str = "weight", **body: Any) -> Space:
    """A space of one tensor: chance is .05."""
    return Space(http, M, **({"layout": LAYOUT} | body), importance={"kind": kind})


def put(space: Space, models: dict[str, Support]) -> None:
    space.put_all(models, {name: {} for name in models})


def declare(space: Space, model: str, base: str | None) -> None:
    ok(space.http.patch(space.path("models", model), json={"base_model": base}))


def lineage(space: Space, model: str) -> dict[str, Any]:
    return ok(space.http.get(space.path("lineage"), params={"model": model}))


def far_kin(http: httpx.Client, crowd: float) -> Space:
    """Two models of S = .25, kappa .21, among twelve that have about ``crowd`` with the first."""
    rng, space = np.random.default_rng(7), space_of(http)
    one = random_support(rng, M, K)
    others = {f"other{at}": related(rng, one, crowd) for at in range(12)}
    put(space, {"one": one, "two": related(rng, one, 0.25), **others})
    return space


@pytest.mark.parametrize("crowd", [0.05, 0.22, 0.28])
def test_both_directions_of_a_pair_say_the_same(http: httpx.Client, crowd: float) -> None:
    """Whoever declares the other: one verdict, reason and P, and never that they are unrelated.

    The crowd is near the first model alone, so that the two have different backgrounds.
    """
    space = far_kin(http, crowd)
    found = []
    for model, base in (("one", "two"), ("two", "one")):
        declare(space, model, base)
        found.append(lineage(space, model))
        declare(space, model, None)
    first, second = (
        (each["verdict"], each["reason"], each["log10_p"], each["base"]["stands_out"])
        for each in found
    )
    assert first == second
    for each in found:
        assert 0.1 < each["base"]["kappa"] < 0.3
        assert each["verdict"] in {"consistent", "inconclusive"}
        assert UNRELATED not in each["summary"]
        assert each["log10_p"] < -3
    if crowd > 0.1:
        assert "more than chance gives unrelated models" in found[0]["summary"]


def test_an_equal_base_is_the_likely_one(http: httpx.Client) -> None:
    """A model of S = .98 that the equal one declares as its base does not take its place."""
    rng, space = np.random.default_rng(8), space_of(http)
    origin = random_support(rng, M, K)
    copied = related(rng, origin, 0.98)
    put(space, {"origin": origin, "equal": copied, "model": copied})
    put(space, {f"other{at}": random_support(rng, M, K) for at in range(4)})
    declare(space, "equal", "origin")
    found = lineage(space, "model")
    assert "equal" == found["likely_base"]
    assert "'equal' is the nearest model that stands out:" in found["summary"]


def test_a_base_that_is_not_the_nearest_is_not_called_so(http: httpx.Client) -> None:
    """Of two fine-tunes of one base, the base is likely for the other, and said to be farther."""
    rng, space = np.random.default_rng(9), space_of(http)
    base = random_support(rng, M, K)
    one = related(rng, base, 0.97)
    put(space, {"base": base, "one": one, "two": related(rng, one, 0.96)})
    put(space, {f"other{at}": random_support(rng, M, K) for at in range(4)})
    declare(space, "one", "base")
    found = lineage(space, "two")
    nearest = found["kin"][0]["model"]
    assert ("one", "base") == (nearest, found["likely_base"])
    assert "'base' stands out, and 'one', which is nearer, declares it" in found["summary"]


def test_each_verdict_has_a_p_or_says_why_not(http: httpx.Client) -> None:
    """In a space of weights with a layout each has one; elsewhere the answer says what lacks."""
    rng = np.random.default_rng(10)
    base = random_support(rng, M, K)
    models = {"base": base, "child": related(rng, base, 0.8), "wrong": random_support(rng, M, K)}
    models |= {f"other{at}": random_support(rng, M, K) for at in range(4)}
    space = space_of(http)
    put(space, models)
    for name in ("child", "wrong"):
        declare(space, name, "base")
    child, wrong = lineage(space, "child"), lineage(space, "wrong")
    assert ("consistent", None) == (child["verdict"], child["no_p"])
    assert child["log10_p"] < -100
    assert child["log10_p"] == child["base"]["log10_p"] == child["declared_bases"][0]["log10_p"]
    assert f"in common is 10^{round(child['log10_p'])}." in child["summary"]
    assert ("mismatch", "chance", 0.0) == (wrong["verdict"], wrong["reason"], wrong["log10_p"])
    declare(space, "wrong", "nobody")
    unknown = lineage(space, "wrong")
    assert unknown["no_p"].startswith("nothing was measured")
    assert (None, unknown["no_p"]) == tuple(
        unknown["declared_bases"][0][field] for field in ("log10_p", "no_p")
    )
    findings = ok(space.http.get(space.path("lineages")))["items"]
    assert all((each["log10_p"] is None) != (each["no_p"] is None) for each in findings)
    for given, why in (
        ({"kind": "fisher"}, "another importance"),
        ({"layout": None, "num_parameters": M}, "no layout"),
    ):
        other = space_of(http, **given)
        put(other, models)
        declare(other, "child", "base")
        answer = lineage(other, "child")
        assert answer["log10_p"] is None
        assert why in answer["no_p"]
    other.put_signature("sent", base.signature(256, 1, "affine32"))
    space.put_signature("sent", base.signature(256, 1, "affine32"))
    declare(space, "child", "sent")
    sent = lineage(space, "child")
    assert "signature" in sent["no_p"]
    assert sent["no_p"] == sent["declared_bases"][0]["no_p"]
