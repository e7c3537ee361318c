"""Neighbours over HTTP, compared with brute force over sets."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import httpx
import numpy as np
import pytest

from modelkin import Support
from tests.support.http_space import (
    JSON,
    RAW,
    ROARING,
    SIGNATURE,
    Space,
    assert_problem,
    family,
    ok,
    random_support,
    ranking,
    related,
    true_neighbors,
)

M, K, N = 10_000, 600, 400
MODELS = family(11, M, K, N)
FAR = [name for name, _ in true_neighbors(MODELS["m000"], MODELS, N)[-3:]]


@pytest.fixture(scope="module")
def crowd(http: httpx.Client) -> Space:
    """400 models at all distances of m000; the three farthest carry the tag ``rare``."""
    space = Space(http, M)
    tags = {
        name: ["even" if position % 2 == 0 else "odd", *(["rare"] if name in FAR else [])]
        for position, name in enumerate(MODELS)
    }
    space.put_all(MODELS, {name: {"tags": tags[name]} for name in MODELS})
    return space


def without(name: str) -> dict[str, Support]:
    """Every model but one."""
    return {other: support for other, support in MODELS.items() if other != name}


def expected(name: str, k: int = 10, least: float = 0.0) -> list[tuple[str, float]]:
    """The answer of brute force for a stored model."""
    return true_neighbors(MODELS[name], without(name), k, least)


@pytest.mark.parametrize("name", ["m000", "m001", "m123"])
def test_exact_neighbors_are_those_of_brute_force(crowd: Space, name: str) -> None:
    """``method=exact`` answers the true order with the true similarities."""
    answer = crowd.neighbors(name, method="exact")
    assert (name, "exact", False) == (answer["model"], answer["method"], answer["degraded"])
    assert expected(name) == ranking(answer)


@pytest.mark.parametrize("name", ["m000", "m001", "m123"])
def test_scanned_neighbors_are_those_of_brute_force(crowd: Space, name: str) -> None:
    """``method=scan`` finds the same near models while it compares half of all closely."""
    answer = crowd.neighbors(name, method="scan")
    assert "scan" == answer["method"]
    near = [pair for pair in expected(name) if pair[1] > 0.3]
    assert near == ranking(answer)[: len(near)]
    assert answer["candidates"] < N / 1.5


def test_auto_compares_a_small_space_exactly(crowd: Space) -> None:
    """``auto`` is ``exact`` where comparing all models is cheap, and it is the default."""
    assert crowd.neighbors("m000", method="exact") == crowd.neighbors("m000")


def test_an_item_says_how_it_was_compared(crowd: Space) -> None:
    """Two supports are compared exactly: shared indices, J = S / (2 - S), and no error."""
    item = crowd.neighbors("m000", k=1)["items"][0]
    shared = len(set(MODELS["m000"].indices.tolist()) & set(MODELS[item["model"]].indices.tolist()))
    assert ("exact", 0.0, shared) == (
        item["estimate"],
        item["standard_error"],
        item["shared_indices"],
    )
    assert shared / (2 * K - shared) == pytest.approx(item["jaccard"])


@pytest.mark.parametrize("k", [1, 7, 399, 1000])
@pytest.mark.parametrize("method", ["exact", "scan"])
def test_k_is_the_length_of_the_answer(crowd: Space, k: int, method: str) -> None:
    """The k best items; fewer if there are no more."""
    found = ranking(crowd.neighbors("m000", k=k, method=method))
    wanted = expected("m000", k)
    assert len(wanted) == len(found)
    assert wanted[: k // 2 + 1] == found[: k // 2 + 1]


@pytest.mark.parametrize("method", ["exact", "scan"])
@pytest.mark.parametrize("least", [0.25, 0.6, 0.9, 1.0])
def test_min_similarity_leaves_out_the_farther(crowd: Space, method: str, least: float) -> None:
    """The answer holds all models above the bound, and no model below."""
    found = crowd.neighbors("m000", k=30, method=method, min_similarity=least)
    assert expected("m000", 30, least) == ranking(found)


def test_a_bound_of_exactly_S_keeps_the_model(crowd: Space) -> None:
    """``min_similarity`` is inclusive."""
    name, similarity = expected("m000", 1)[0]
    found = crowd.neighbors("m000", min_similarity=repr(similarity))
    assert [name] == [item["model"] for item in found["items"]]


@pytest.mark.parametrize("method", ["exact", "scan"])
def test_a_rare_tag_fills_the_page(crowd: Space, method: str) -> None:
    """The filter applies before the best are taken: the three farthest of 400 are all found."""
    found = crowd.neighbors("m000", tag="rare", method=method)
    wanted = true_neighbors(MODELS["m000"], {name: MODELS[name] for name in FAR})
    assert wanted == ranking(found)


@pytest.mark.parametrize("method", ["exact", "scan"])
def test_several_tags_ask_for_models_with_all_of_them(crowd: Space, method: str) -> None:
    """``tag`` repeats, and a model must carry every one of them."""
    even = set(list(MODELS)[::2])
    found = crowd.neighbors("m000", tag=["rare", "even"], method=method)
    assert {name for name in FAR if name in even} == {item["model"] for item in found["items"]}


def test_an_unused_tag_finds_no_model(crowd: Space) -> None:
    """An unknown tag gives an empty answer, not an error."""
    assert [] == crowd.neighbors("m000", tag="nobody")["items"]


@pytest.mark.parametrize("method", ["exact", "scan"])
@pytest.mark.parametrize("media_type", [RAW, ROARING, JSON])
def test_a_support_in_the_body_finds_all_its_kin(
    crowd: Space, method: str, media_type: str
) -> None:
    """A support in the body gets the neighbours that it would have, and is not stored."""
    query = related(np.random.default_rng(5), MODELS["m000"], 0.8)
    body = {
        RAW: query.indices.astype("<u4").tobytes(),
        ROARING: query.to_roaring(),
        JSON: f'{{"indices":{query.indices.tolist()}}}'.encode(),
    }[media_type]
    before = crowd.show()
    answer = crowd.find(body, media_type, method=method)
    assert (None, method) == (answer["model"], answer["method"])
    assert true_neighbors(query, MODELS) == ranking(answer)
    assert before == crowd.show()


def test_a_stored_support_in_the_body_finds_itself_first(crowd: Space) -> None:
    """A POST leaves no model out: the same support under its stored name has S = 1."""
    answer = crowd.find(MODELS["m007"].to_bytes(), k=1)
    assert [("m007", 1.0)] == ranking(answer)


@pytest.mark.parametrize("method", ["exact", "scan"])
def test_a_signature_in_the_body_finds_estimates(crowd: Space, method: str) -> None:
    """A signature is compared by its 256 values, with J the share of equal ones."""
    query = MODELS["m000"].signature()
    answer = crowd.find(query.to_bytes(), SIGNATURE, method=method, k=20)
    for item in answer["items"]:
        values = MODELS[item["model"]].signature().values
        jaccard = float(np.mean(values == query.values))
        assert_estimate(item, jaccard, 256)
    assert {"m000"} == {item["model"] for item in answer["items"] if item["similarity"] == 1.0}


def assert_estimate(item: dict[str, Any], jaccard: float, h: int) -> None:
    """Require that ``item`` is an estimate from h values, a share ``jaccard`` of which agree."""
    error = 2 / (1 + jaccard) ** 2 * math.sqrt(jaccard * (1 - jaccard) / h)
    if jaccard in (0, 1):  # the rule of three: J is at most 3 / h, or at least 1 - 3 / h
        error = 3 / (2 * h - 3) if jaccard else 6 / (h + 3)
    assert ("signature", None) == (item["estimate"], item["shared_indices"])
    assert (jaccard, 2 * jaccard / (1 + jaccard), error) == pytest.approx(
        (item["jaccard"], item["similarity"], item["standard_error"])
    )


def test_a_model_of_a_signature_alone_takes_part(space: Space) -> None:
    """A model of a signature alone is ranked by its estimate, and its item says so."""
    rng = np.random.default_rng(2)
    base = random_support(rng, M, K)
    hidden = related(rng, base, 0.7)
    space.put_all({"base": base, "far": related(rng, base, 0.2), "near": related(rng, base, 0.95)})
    space.put_signature("hidden", hidden.signature())
    answer = space.neighbors("base")
    assert ["near", "hidden", "far"] == [item["model"] for item in answer["items"]]
    kinds = [item["estimate"] for item in answer["items"]]
    assert ["exact", "signature", "exact"] == kinds
    jaccard = base.signature().jaccard(hidden.signature())
    assert_estimate(answer["items"][1], jaccard, 256)


def test_everything_is_an_estimate_for_a_signature_alone(space: Space) -> None:
    """The neighbours of a signature-only model are estimates, even those with supports."""
    rng = np.random.default_rng(3)
    base = random_support(rng, M, K)
    others = {f"o{i}": related(rng, base, i / 10) for i in range(3, 10, 3)}
    space.put_all(others)
    space.put_signature("base", base.signature())
    answer = space.neighbors("base")
    assert ["o9", "o6", "o3"] == [item["model"] for item in answer["items"]]
    for item in answer["items"]:
        jaccard = base.signature().jaccard(others[item["model"]].signature())
        assert_estimate(item, jaccard, 256)


@pytest.mark.parametrize("method", ["exact", "scan"])
def test_ties_are_answered_by_name(space: Space, method: str) -> None:
    """Equal similarities are in code point order of the names, not in the order of storing."""
    rng = np.random.default_rng(4)
    base = random_support(rng, M, K)
    twin = related(rng, base, 0.5)
    names = ["b", "Z", "é", "a/b", "a", "a b", "10", "9", "中"]
    space.put("base", base)
    space.put_all(dict.fromkeys(names, twin))
    assert sorted(names) == [
        item["model"] for item in space.neighbors("base", method=method)["items"]
    ]
    first = [item["model"] for item in space.neighbors("base", method=method, k=3)["items"]]
    assert sorted(names)[:3] == first


@pytest.mark.slow
@pytest.mark.parametrize("method", ["exact", "scan"])
def test_the_next_query_sees_every_write(space: Space, method: str) -> None:
    """A PUT, a replacement, a PATCH and a DELETE each show in the very next answer."""
    rng = np.random.default_rng(6)
    base = random_support(rng, M, K)
    present: dict[str, Support] = {}
    space.put("base", base)

    def seen(**params: Any) -> list[tuple[str, float]]:
        return ranking(space.neighbors("base", method=method, k=100, **params))

    for round_ in range(30):
        name = f"n{rng.integers(8)}"
        if name in present and rng.random() < 0.4:
            assert 204 == space.http.delete(space.path("models", name)).status_code
            del present[name]
        else:
            present[name] = related(rng, base, rng.random())
            space.put(name, present[name], tags=[f"r{round_}"])
            assert [name] == [found for found, _ in seen(tag=f"r{round_}")]
        assert true_neighbors(base, present, 100) == seen()


def test_a_patched_tag_filters_the_next_query(space: Space) -> None:
    """Tags that a PATCH sets and clears count at once."""
    base = random_support(np.random.default_rng(9), M, K)
    space.put_all({"base": base, "other": base})
    url = space.path("models", "other")
    for tags, found in (["x"], ["other"]), ([], []), (["y", "x"], ["other"]):
        ok(space.http.patch(url, json={"tags": tags}))
        items = space.neighbors("base", tag="x")["items"]
        assert found == [item["model"] for item in items]


@pytest.mark.parametrize("method", ["exact", "scan", "auto"])
def test_a_model_alone_has_no_neighbors(space: Space, method: str) -> None:
    """A model is never its own neighbour, even in a space of one model."""
    space.put("a", random_support(np.random.default_rng(1), M, K))
    assert [] == space.neighbors("a", method=method)["items"]


@pytest.mark.parametrize("method", ["exact", "scan"])
def test_an_empty_space_has_an_empty_answer(space: Space, method: str) -> None:
    """A query by body in a space without models gets an empty answer."""
    support = random_support(np.random.default_rng(1), M, K)
    answer = space.find(support.to_bytes(), method=method)
    assert ([], 0) == (answer["items"], answer["candidates"])


@pytest.mark.parametrize("method", ["exact", "scan"])
def test_supports_of_other_sizes_use_dices_formula(space: Space, method: str) -> None:
    """For unequal K, S is 2 |I n J| / (|I| + |J|): a subset of a third has S = 1/2."""
    base = random_support(np.random.default_rng(2), M, K)
    space.put_all({"base": base, "third": Support.from_indices(base.indices[: K // 3], M)})
    assert [("third", 0.5)] == ranking(space.neighbors("base", method=method))


def test_similarity_falls_along_the_answer(crowd: Space) -> None:
    """The best come first, for a signature's estimates too."""
    answer = crowd.find(MODELS["m050"].signature().to_bytes(), SIGNATURE, k=200)
    similarities = [item["similarity"] for item in answer["items"]]
    assert all(a >= b for a, b in pairwise(similarities))


def test_an_unknown_method_is_a_422(crowd: Space) -> None:
    """The error names the field, and the methods that exist."""
    answer = crowd.http.get(crowd.path("neighbors"), params={"model": "m000", "method": "magic"})
    assert "scan" in assert_problem(answer, 422, "invalid_parameter", "method")


def test_the_neighbors_of_an_unknown_model_are_a_404(crowd: Space) -> None:
    """An unknown model is an error, unlike one without neighbours."""
    answer = crowd.http.get(crowd.path("neighbors"), params={"model": "nobody"})
    assert "nobody" in assert_problem(answer, 404, "model_not_found")
