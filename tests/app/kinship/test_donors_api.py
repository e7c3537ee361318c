"""Donors over HTTP: methods compared with brute force, weights, filters and mistakes."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping
from typing import Any

import httpx
import numpy as np
import pytest

from modelkin import Support
from modelkin.wire.json import signature_to_json
from tests.support.blob_files import blob_files
from tests.support.fixtures import on_one_database
from tests.support.http_space import (
    SIGNATURE,
    Space,
    assert_problem,
    family,
    ok,
    random_support,
    ranking,
    related,
    true_neighbors,
    true_similarity,
)
from tests.support.servers.server_process import Server

pytestmark = on_one_database

M, K, N = 10_000, 500, 30
MODELS = family(21, M, K, N)
SETS = {name: set(support.indices.tolist()) for name, support in MODELS.items()}
TARGET = "m000"
OTHERS = {name: support for name, support in MODELS.items() if name != TARGET}
METHODS = ("similarity", "idf", "cover", "knn_shapley")
LABELS = {name: "abc"[i % 3] for i, name in enumerate(MODELS)}
METRICS = {name: (i * 37 % 100) / 100 for i, name in enumerate(MODELS)}


@pytest.fixture(scope="module")
def crowd(http: httpx.Client) -> Space:
    """30 models with labels and metrics; every other one carries the tag ``even``."""
    space = Space(http, M)
    fields = {
        name: {
            "tags": ["even"] if position % 2 == 0 else [],
            "attributes": {"mix": LABELS[name], "score": METRICS[name], "size": position},
        }
        for position, name in enumerate(MODELS)
    }
    space.put_all(MODELS, fields)
    return space


def ask(space: Space, **params: Any) -> httpx.Response:
    """GET donors."""
    return space.http.get(space.path("donors"), params={"target": TARGET, **params})


def donors(space: Space, **params: Any) -> dict[str, Any]:
    """The donors of a stored model."""
    return ok(ask(space, **params))


def parameters(method: str) -> dict[str, Any]:
    """The parameters that a method needs."""
    return {"method": method} | ({"label": "mix"} if method == "knn_shapley" else {})


def named(answer: Mapping[str, Any], field: str) -> list[tuple[str, Any]]:
    """Names of donors, and one of their reasons."""
    return [(item["model"], item["why"][field]) for item in answer["items"]]


# --- the methods --------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [1, 5, 1000])
def test_similarity_ranks_the_neighbors(crowd: Space, k: int) -> None:
    """The paper's ranking: by S, without the target and without models of S = 0."""
    answer = donors(crowd, k=k)
    expected = [(n, s) for n, s in true_neighbors(MODELS[TARGET], OTHERS, k) if s > 0]
    assert (TARGET, "similarity") == (answer["target"], answer["method"])
    assert expected == ranking(answer)
    shared = [(name, len(SETS[TARGET] & SETS[name])) for name, _ in expected]
    assert shared == named(answer, "shared_indices")


def test_idf_weighs_by_how_rare_an_index_is(crowd: Space) -> None:
    """Shares follow the inverse document frequencies over all other models of the space."""
    n = len(OTHERS)
    held = {i: sum(i in SETS[name] for name in OTHERS) for i in SETS[TARGET]}
    weight = {i: math.log((n + 1) / (c + 1)) for i, c in held.items()}
    total = sum(weight.values())
    shares = {name: sum(weight[i] for i in SETS[TARGET] & SETS[name]) / total for name in OTHERS}
    expected = sorted(shares.items(), key=lambda pair: -pair[1])[:8]
    answer = donors(crowd, method="idf", k=8)
    found = dict(named(answer, "rarity"))
    assert dict(expected) == pytest.approx(found, abs=1e-6)
    assert sorted(found.values(), reverse=True) == list(found.values())
    for name, gain in named(answer, "rarity_gain"):
        shared = [weight[i] for i in SETS[TARGET] & SETS[name]]
        assert np.mean(shared) / (total / K) == pytest.approx(gain, abs=1e-5)


def test_idf_prefers_donors_of_rare_indices(space: Space) -> None:
    """Of two donors of equal S the one that shares rare indices ranks first."""
    space.put(TARGET, Support.from_indices(range(100), M))
    space.put("common", Support.from_indices([*range(50), *range(200, 250)], M))
    space.put("rare", Support.from_indices([*range(50, 100), *range(300, 350)], M))
    for n in range(8):  # all others hold the first half
        space.put(
            f"x{n}", Support.from_indices([*range(50), *range(1000 * n + 500, 1000 * n + 550)], M)
        )
    best, *others = donors(space, method="idf", k=10)["items"]
    assert ("rare", 0.5) == (best["model"], best["similarity"])
    assert best["why"]["rarity_gain"] > 1.5 > 1 > others[0]["why"]["rarity_gain"]
    assert "1." in best["why"]["sentence"]


def greedy(k: int) -> list[tuple[str, int]]:
    """The greedy cover over Python's sets: the chosen models, and how many indices each adds."""
    left, taken = set(SETS[TARGET]), []
    order = [name for name, _ in true_neighbors(MODELS[TARGET], OTHERS, N)]
    for _ in range(k):
        best = max(order, key=lambda name: len(SETS[name] & left))  # the first of equals
        if not SETS[best] & left:
            break
        taken.append((best, len(SETS[best] & left)))
        left -= SETS[best]
    return taken


@pytest.mark.parametrize("k", [1, 3, 30])
def test_cover_takes_the_model_that_adds_most(crowd: Space, k: int) -> None:
    """Each next donor holds most of the missing indices; it ends when all are held."""
    answer, expected = donors(crowd, method="cover", k=k), greedy(k)
    assert [(name, added / K) for name, added in expected] == named(answer, "explained")
    total = np.cumsum([added for _, added in expected]) / K
    assert total.tolist() == pytest.approx([share for _, share in named(answer, "cumulative")])


def test_a_cover_finds_a_far_complement(space: Space) -> None:
    """The donor of the missing half comes second, before nearer ones that add nothing."""
    space.put(TARGET, Support.from_indices(range(100), M))
    space.put("half", Support.from_indices(range(60), M))
    space.put("same-half", Support.from_indices(range(55), M))
    space.put("rest", Support.from_indices([*range(60, 100), *range(5000, 5100)], M))
    answer = donors(space, method="cover")
    assert [("half", 0.6), ("rest", 1.0)] == named(answer, "cumulative")
    assert (
        "40.0% of the target that no donor before it does, 100.0% in all"
        in (answer["items"][1]["why"]["sentence"])
    )


def shapley(order: list[str], worth: Mapping[str, float], neighbors: int) -> dict[str, float]:
    """Shapley's sum over all coalitions, of the mean worth of each one's nearest members."""
    n, place = len(order), {name: i for i, name in enumerate(order)}

    def utility(members: tuple[str, ...]) -> float:
        return sum(worth[m] for m in sorted(members, key=place.__getitem__)[:neighbors]) / neighbors

    values = dict.fromkeys(order, 0.0)
    for name in order:
        others = [other for other in order if other != name]
        for size in range(n):
            share = math.factorial(size) * math.factorial(n - size - 1) / math.factorial(n)
            for members in itertools.combinations(others, size):
                values[name] += share * (utility((*members, name)) - utility(members))
    return values


@pytest.mark.parametrize("neighbors", [1, 3])
@pytest.mark.parametrize("kind", ["label", "metric"])
def test_shapley_values_are_those_of_all_coalitions(
    space: Space, kind: str, neighbors: int
) -> None:
    """Seven donors' values, by label or metric, equal Shapley's sum over all coalitions.

    Models worth nothing or less are left out.
    """
    few = dict(itertools.islice(MODELS.items(), 8))
    attribute_of = {n: LABELS[n] if kind == "label" else METRICS[n] for n in few}
    space.put_all(few, {name: {"attributes": {"noted": attribute_of[name]}} for name in few})
    order = [n for n, _ in true_neighbors(few[TARGET], {n: few[n] for n in few if n != TARGET})]
    worth = {
        n: float(attribute_of[n] == attribute_of[TARGET]) if kind == "label" else METRICS[n]
        for n in order
    }
    values = shapley(order, worth, neighbors)
    expected = {name: value for name, value in values.items() if value > 1e-12}
    answer = donors(space, method="knn_shapley", neighbors=neighbors, **{kind: "noted"})
    found = dict(named(answer, "shapley"))
    assert expected == pytest.approx(found)
    assert sorted(found.values(), reverse=True) == list(found.values())
    assert {n: worth[n] for n in found} == dict(named(answer, "worth"))


def test_labels_of_any_kind_are_compared_as_text(space: Space) -> None:
    """3 and "3" are one label, true is another; lists, objects and null are not labels."""
    labels = {"a": 3, "b": "3", "c": True, "d": [3], "e": {"3": 3}, "f": None, "g": 3.0}
    models = dict.fromkeys((TARGET, *labels), MODELS[TARGET])
    space.put_all(models, {name: {"attributes": {"y": label}} for name, label in labels.items()})
    answer = donors(space, method="knn_shapley", label="y", target_label="3")
    assert {"a", "b"} == {item["model"] for item in answer["items"]}
    assert (3, 4) == (answer["candidates"], answer["left_out"])
    answer = donors(space, method="knn_shapley", label="y", target_label="true")
    assert ["c"] == [item["model"] for item in answer["items"]]
    metric = donors(space, method="knn_shapley", metric="y")
    assert {"a", "g"} == {item["model"] for item in metric["items"]}


def test_shapley_finds_labels_that_are_rare_and_far(http: httpx.Client) -> None:
    """The search goes on until it finds enough labelled models, however far they are."""
    space, rng = Space(http, 2_000, signature={"num_perm": 32}), np.random.default_rng(2)
    base = random_support(rng, 2_000, 100)
    space.put(TARGET, base)
    near = signature_to_json(related(rng, base, 0.9).signature(num_perm=32))
    lines = "\n".join(json.dumps({"model": f"n{n}", "signature": near}) for n in range(1_200))
    headers = {"Content-Type": "application/jsonl"}
    http.post(space.path("batch"), content=lines, headers=headers).raise_for_status()
    assert 1_201 == space.show()["models"]
    space.put("far", related(rng, base, 0.2))
    http.patch(space.path("models", "far"), json={"attributes": {"y": "x"}})
    answer = donors(space, method="knn_shapley", label="y", target_label="x")
    assert [("far", 0.2)] == named(answer, "shapley")
    assert (1, 1_200) == (answer["candidates"], answer["left_out"])


# --- weights and reasons ------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("weights", ["", "zscore", "similarity", "score"])
def test_weights_have_their_stated_basis(crowd: Space, method: str, weights: str) -> None:
    """They sum to 1: proportional to exp(z), to S, or to the score of the method."""
    answer = donors(crowd, **parameters(method), **({"weights": weights} if weights else {}))
    items = answer["items"]
    expected_kind = weights or ("score" if method == "cover" else "zscore")
    assert expected_kind == answer["weights"]
    if expected_kind == "zscore":
        scores = [math.exp(item["why"]["z_score"]) for item in items]
    else:
        figure = {"idf": "rarity", "cover": "explained", "knn_shapley": "shapley"}.get(method)
        by_method = expected_kind == "score" and figure is not None
        scores = [item["why"][figure] if by_method else item["similarity"] for item in items]
    assert (np.array(scores) / sum(scores)).tolist() == pytest.approx([i["weight"] for i in items])
    assert 1.0 == pytest.approx(sum(item["weight"] for item in items))


def test_z_scores_are_over_the_whole_space(crowd: Space) -> None:
    """Mean and deviation are of the estimated S to all other models, whatever the filters."""
    true = np.array([true_similarity(MODELS[TARGET], other) for other in OTHERS.values()])
    whole, some = donors(crowd), donors(crowd, tag="even", min_similarity=0.5, exclude="m001")
    usual = whole["usual"]
    assert usual == some["usual"]
    assert len(OTHERS) == usual["models"]
    assert true.mean() == pytest.approx(usual["similarity"], abs=0.03)
    assert true.std() == pytest.approx(usual["deviation"], rel=0.15)
    for item in whole["items"]:
        z = (item["similarity"] - usual["similarity"]) / usual["deviation"]
        assert z == pytest.approx(item["why"]["z_score"])


@pytest.mark.parametrize("method", METHODS)
def test_every_donor_says_why(crowd: Space, method: str) -> None:
    """A sentence, the shared indices and the method's own figures; the others are null."""
    own = {
        "similarity": set(),
        "idf": {"rarity", "rarity_gain"},
        "cover": {"explained", "cumulative"},
        "knn_shapley": {"shapley", "worth", "label"},
    }
    for item in donors(crowd, **parameters(method))["items"]:
        given = {name for name, value in item["why"].items() if value is not None}
        assert own[method] | {"sentence", "shared_indices", "z_score"} == given
        assert len(item["why"]["sentence"]) > 30


def test_one_or_no_other_model(space: Space) -> None:
    """The only other model weighs 1 and has no z-score; without any there is no donor."""
    space.put(TARGET, MODELS[TARGET])
    for method in ("similarity", "idf", "cover"):
        assert [] == donors(space, method=method)["items"]
    space.put("m001", MODELS["m001"])
    for method in ("similarity", "idf", "cover"):
        (item,) = donors(space, method=method)["items"]
        assert ("m001", 1.0, None) == (item["model"], item["weight"], item["why"]["z_score"])


def test_a_model_that_shares_nothing_is_left_out(space: Space) -> None:
    """S of 0 has no weight and is left out, even if there is no other model."""
    space.put(TARGET, Support.from_indices(range(100), M))
    space.put("stranger", Support.from_indices(range(200, 300), M))
    for method in ("similarity", "idf", "cover"):
        assert [] == donors(space, method=method)["items"]
    space.put("kin", Support.from_indices(range(50, 150), M))
    for method in ("similarity", "idf", "cover"):
        items = donors(space, method=method)["items"]
        assert [("kin", 0.5, 1.0)] == [(i["model"], i["similarity"], i["weight"]) for i in items]


# --- who may be a donor -------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_filters_hold_for_every_method(crowd: Space, method: str) -> None:
    """Donors carry the tag, are near enough and are not excluded."""
    out = [name for name, _ in true_neighbors(MODELS[TARGET], OTHERS, 4)]
    answer = donors(crowd, **parameters(method), k=30, tag="even", min_similarity=0.3, exclude=out)
    found = {item["model"] for item in answer["items"]}
    even = {name for i, name in enumerate(MODELS) if i % 2 == 0}
    allowed = {
        name
        for name, s in true_neighbors(MODELS[TARGET], OTHERS, N)
        if s >= 0.3 and name in even and name not in out
    }
    assert found
    assert found <= allowed
    if method in {"similarity", "idf"}:
        assert allowed == found


@pytest.mark.parametrize("method", METHODS)
def test_the_target_is_never_its_own_donor(crowd: Space, method: str) -> None:
    """Excluding the target changes nothing; nor does excluding unknown names."""
    plain = donors(crowd, **parameters(method), k=29)
    assert TARGET not in {item["model"] for item in plain["items"]}
    assert (
        plain["items"]
        == donors(crowd, **parameters(method), k=29, exclude=[TARGET, "no-such-model"])["items"]
    )


def test_excluding_all_models_is_an_empty_answer(crowd: Space) -> None:
    """Exclusions of all models are not an error."""
    for method in ("similarity", "idf", "cover"):
        assert [] == donors(crowd, method=method, exclude=list(OTHERS))["items"]


def test_donors_of_a_support_and_of_a_signature_in_the_body(crowd: Space) -> None:
    """POST finds donors for a body that is not stored, exact or estimated."""
    query = related(np.random.default_rng(9), MODELS[TARGET], 0.9)
    exact = crowd.find(query.to_bytes(), what="donors", k=3)
    assert (None, true_neighbors(query, MODELS, 3)) == (exact["target"], ranking(exact))
    assert N == exact["usual"]["models"]
    estimated = crowd.find(query.signature().to_bytes(), SIGNATURE, what="donors", k=3)
    assert {"signature"} == {item["estimate"] for item in estimated["items"]}
    assert all(item["standard_error"] > 0 for item in estimated["items"])
    assert {None} == {item["why"]["shared_indices"] for item in estimated["items"]}
    assert 1.0 == pytest.approx(sum(item["weight"] for item in estimated["items"]))
    cover = crowd.find(query.to_bytes(), what="donors", method="cover")
    assert TARGET == cover["items"][0]["model"]


def test_donors_of_a_signature_alone_are_left_out_and_counted(space: Space) -> None:
    """``idf`` and ``cover`` need supports of donors; the others take estimates."""
    space.put(TARGET, MODELS[TARGET])
    space.put("m001", MODELS["m001"])
    for n in (2, 3):
        space.put_signature(f"m00{n}", MODELS[f"m00{n}"].signature())
    for method in ("idf", "cover"):
        answer = donors(space, method=method)
        assert ["m001"] == [item["model"] for item in answer["items"]]
        assert (1, 2) == (answer["candidates"], answer["left_out"])
    answer = donors(space)
    assert {"m001", "m002", "m003"} == {item["model"] for item in answer["items"]}
    assert 0 == answer["left_out"]


@pytest.mark.parametrize("method", ["idf", "cover"])
def test_a_target_of_a_signature_alone_needs_its_support(space: Space, method: str) -> None:
    """Stored or sent, a signature does not show the target's indices: a clear 422."""
    space.put_signature(TARGET, MODELS[TARGET].signature())
    space.put("m001", MODELS["m001"])
    sent = space.http.post(
        space.path("donors"),
        content=MODELS[TARGET].signature().to_bytes(),
        headers={"Content-Type": SIGNATURE},
        params={"method": method},
    )
    for answer in (ask(space, method=method), sent):
        detail = assert_problem(answer, 422, "support_missing", "target")
        assert "method=similarity" in detail
    assert ["m001"] == [item["model"] for item in donors(space)["items"]]
    space.put(TARGET, MODELS[TARGET])
    assert ["m001"] == [item["model"] for item in donors(space, method=method)["items"]]


def degraded_answers(space: Space) -> float:
    """How many degraded answers with donors the metrics have counted."""
    name = 'modelkin_degraded_answers_total{operation="donors"} '
    lines = space.http.get("/metrics").text.splitlines()
    return sum(float(line.removeprefix(name)) for line in lines if line.startswith(name))


def test_a_damaged_support_degrades(space: Space, server: Server) -> None:
    """A donor whose file is lost is missing, the answer and /metrics say so, others are whole."""
    for seed, name in enumerate("tab"):
        space.put(name, random_support(np.random.default_rng(seed), M, K))
    counted = degraded_answers(space)
    # The file of b, which has not been read yet.
    max(blob_files(server.blobs), key=lambda path: path.stat().st_mtime_ns).unlink()
    for method in ("idf", "cover"):
        answer = donors(space, target="t", method=method)
        assert (True, ["a"]) == (answer["degraded"], [item["model"] for item in answer["items"]])
    assert counted + 2 == degraded_answers(space)


# --- mistakes -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("params", "field", "said"),
    [
        ({"method": "shapley"}, "method", "similarity"),
        ({"weights": "uniform"}, "weights", "zscore"),
        ({"k": 0}, "k", "1"),
        ({"k": 1001}, "k", "1000"),
        ({"k": 1000, "exclude": "x"}, "exclude", "together 1000"),
        ({"min_similarity": 1.5}, "min_similarity", "1"),
        ({"min_similarity": "nan"}, "min_similarity", "finite"),
        ({"exclude": ["a", "a/../b"]}, "exclude[1]", "'..'"),
        ({"method": "knn_shapley"}, "label", "label="),
        ({"method": "knn_shapley", "label": "mix", "metric": "score"}, "label", "metric="),
        ({"method": "knn_shapley", "label": "mix", "neighbors": 0}, "neighbors", "1"),
        ({"method": "knn_shapley", "label": ""}, "label", "1"),
        (
            {"method": "knn_shapley", "metric": "score", "target_label": "a"},
            "target_label",
            "label=",
        ),
        ({"label": "mix"}, "label", "knn_shapley"),
        ({"metric": "score"}, "metric", "knn_shapley"),
        ({"method": "idf", "neighbors": 3}, "neighbors", "knn_shapley"),
        ({"method": "cover", "target_label": "a"}, "target_label", "knn_shapley"),
        ({"method": "knn_shapley", "label": "nothing"}, "target_label", "'nothing'"),
        (
            {"method": "knn_shapley", "label": "nothing", "target_label": "a"},
            "label",
            "carries the attribute 'nothing'",
        ),
        ({"method": "knn_shapley", "metric": "mix"}, "metric", "a finite number"),
        ({"method": "knn_shapley", "label": "mix", "tag": "nobody"}, "label", "'mix'"),
    ],
)
def test_invalid_parameters_are_a_422(crowd: Space, params: Any, field: str, said: str) -> None:
    """The error names the parameter and says what is missing or does not go together."""
    code = "invalid_name" if field.startswith("exclude[") else "invalid_parameter"
    assert said in assert_problem(ask(crowd, **params), 422, code, field)


def test_an_unknown_target_is_a_404(crowd: Space) -> None:
    """For every method, and before any computation."""
    for method in METHODS:
        answer = crowd.http.get(
            crowd.path("donors"), params={"target": "nobody", **parameters(method)}
        )
        assert "'nobody'" in assert_problem(answer, 404, "model_not_found")
