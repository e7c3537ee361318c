"""Donors at chance: marked, without a weight unless asked for, and said where there is no other."""

from __future__ import annotations

import json
from typing import Any

import httpx
import numpy as np
import pytest

from modelkin import Client, Support
from modelkin.wire.json import signature_to_json
from tests.support.fixtures import on_one_database
from tests.support.http_space import SIGNATURE, Space, ok, random_support, related

pytestmark = on_one_database

M, K = 4_000, 360
METHODS = ("similarity", "idf", "cover", "knn_shapley")
RNG = np.random.default_rng(12)
TARGET = random_support(RNG, M, K)
STRANGERS = {f"s{n}": related(RNG, TARGET, 0.09) for n in range(5)}
KIN = {"kin-near": related(RNG, TARGET, 0.6), "kin-far": related(RNG, TARGET, 0.3)}
LAYOUT = [{"name": "norm", "shape": [200]}, {"name": "body", "shape": [3_800]}]


def filled(http: httpx.Client, models: dict[str, Support], **body: Any) -> Space:
    """A space with a target and other models, all of one label."""
    space = Space(http, M, **body)
    whole = {"target": TARGET, **models}
    space.put_all(whole, {name: {"attributes": {"mix": "a"}} for name in whole})
    return space


@pytest.fixture(scope="module")
def strangers(http: httpx.Client) -> Space:
    """A target and five models of S = .09, as much as chance makes where 9% are held."""
    return filled(http, STRANGERS)


@pytest.fixture(scope="module")
def mixed(http: httpx.Client) -> Space:
    """The same with two kin, of S = .6 and .3."""
    return filled(http, KIN | STRANGERS)


def donors(space: Space, method: str, **params: Any) -> dict[str, Any]:
    """The donors of the stored target."""
    label = {"label": "mix"} if method == "knn_shapley" else {}
    query = {"target": "target", "method": method, **label, **params}
    return ok(space.http.get(space.path("donors"), params=query))


def shares(answer: dict[str, Any]) -> list[tuple[str, bool, bool]]:
    """Each donor, whether it is unrelated, and whether it has a weight."""
    return [(item["model"], item["unrelated"], item["weight"] > 0) for item in answer["items"]]


@pytest.mark.parametrize("method", METHODS)
def test_strangers_weigh_nothing(strangers: Space, method: str) -> None:
    """All five are marked and weigh 0; the answer says that there is no donor among them."""
    answer = donors(strangers, method)
    assert {(name, True, False) for name in STRANGERS} == set(shares(answer))
    assert "none of these 5 is related to the target" in answer["note"]
    assert "include_unrelated" in answer["note"]
    assert all("unrelated" in item["why"]["sentence"] for item in answer["items"])
    # Without a layout kappa is unknown: K / M = .09 is the S of chance, and .1 of the rest is more.
    assert "(S below 0.181, which supports of this size have by chance)" in answer["note"]


def test_the_note_names_kappa_where_it_decided(http: httpx.Client) -> None:
    """In a space with a layout kappa decides for supports; a signature among them has the floor."""
    space = filled(http, STRANGERS, layout=LAYOUT)
    note = donors(space, "similarity")["note"]
    assert "(kappa below 0.1): none has a weight" in note
    space.put_signature("seen", STRANGERS["s0"].signature(256, 1, "affine32"))
    note = donors(space, "similarity", k=9)["note"]
    assert "(kappa below 0.1 or S below 0.181, which supports" in note


def test_each_donor_has_a_p_or_the_answer_says_why_not(http: httpx.Client, mixed: Space) -> None:
    """With a layout that of kin is small and that of strangers 1; without, the reason is said."""
    assert {None} == {item["log10_p"] for item in donors(mixed, "similarity")["items"]}
    assert "no layout" in donors(mixed, "similarity")["no_p"]
    found = donors(filled(http, KIN | STRANGERS, layout=LAYOUT), "similarity")
    assert found["no_p"] is None
    p_of = {item["model"]: item["log10_p"] for item in found["items"]}
    assert p_of["kin-near"] < p_of["kin-far"] < -5
    assert {0.0} == {p_of[name] for name in STRANGERS}


@pytest.mark.parametrize("method", METHODS)
def test_strangers_weigh_if_they_are_asked_for(strangers: Space, method: str) -> None:
    """They stay marked, their weights sum to 1, and the note stays."""
    answer = donors(strangers, method, include_unrelated=True)
    assert {(name, True, True) for name in STRANGERS} == set(shares(answer))
    assert 1.0 == pytest.approx(sum(item["weight"] for item in answer["items"]))
    assert "none of these 5 is related" in answer["note"]


@pytest.mark.parametrize("method", METHODS)
def test_kin_share_the_weight(mixed: Space, method: str) -> None:
    """Unrelated models take the places that kin leave, and do not change the weights of these."""
    answer = donors(mixed, method)
    first = [item for item in answer["items"] if item["model"] in KIN]
    rest = [item for item in answer["items"] if item["model"] not in KIN]
    assert set(KIN) == {item["model"] for item in first}
    assert 1.0 == pytest.approx(sum(item["weight"] for item in first))
    assert all(item["unrelated"] and item["weight"] == 0 for item in rest)
    assert rest
    assert "none of these" not in (answer["note"] or "")
    alone = donors(mixed, method, exclude=list(STRANGERS))
    if method != "knn_shapley":  # whose values depend on all players
        assert [i["weight"] for i in alone["items"]] == pytest.approx([i["weight"] for i in first])
    two = donors(mixed, method, k=2)
    assert set(KIN) == {item["model"] for item in two["items"]}


def test_a_cover_of_all_is_asked_for(mixed: Space) -> None:
    """With ``include_unrelated`` each donor adds most to those before, related or not."""
    whole = donors(mixed, "cover", include_unrelated=True)
    explained = [item["why"]["explained"] for item in whole["items"]]
    assert sorted(explained, reverse=True) == explained
    kin_first = donors(mixed, "cover")
    for answer in (whole, kin_first):
        added = np.cumsum([item["why"]["explained"] for item in answer["items"]])
        assert added.tolist() == pytest.approx([i["why"]["cumulative"] for i in answer["items"]])


@pytest.mark.parametrize("form", ["support", "signature"])
def test_bodies_have_unrelated_donors_too(strangers: Space, form: str) -> None:
    """POST marks the donors of a support and of a signature, which are estimates."""
    data = (TARGET.to_bytes(), "application/vnd.modelkin.support")
    if form == "signature":
        data = (TARGET.signature().to_bytes(), SIGNATURE)
    answer = strangers.find(*data, what="donors", exclude="target")
    assert all(item["unrelated"] == (item["similarity"] < 0.172) for item in answer["items"])
    assert sum(item["unrelated"] for item in answer["items"]) >= 4
    asked = strangers.find(*data, what="donors", exclude="target", include_unrelated="true")
    assert all(item["weight"] > 0 for item in asked["items"])


def test_signatures_alone_have_the_floor_of_their_k(http: httpx.Client) -> None:
    """A signature carries K, so the floor is known: an estimate of .2, less two of its errors, is
    kin at 1% and chance at 9%.
    """
    space = Space(http, M)
    for name, k in (("small", 40), ("large", 360)):
        signature = signature_to_json(TARGET.signature()) | {"support_size": k}
        ok(http.put(space.path("signatures", name), json=signature))
    rng = np.random.default_rng(5)
    values = TARGET.signature().values.copy()
    values[rng.permutation(256)[28:]] += 1  # J = .109, S = .197 ± .032
    for name, k in (("small-query", 40), ("large-query", 360)):
        sent = signature_to_json(TARGET.signature()) | {
            "support_size": k,
            "values": values.tolist(),
        }
        ok(http.put(space.path("signatures", name), json=sent))
    found = {
        name: {
            item["model"]: item["unrelated"]
            for item in ok(http.get(space.path("donors"), params={"target": name}))["items"]
        }
        for name in ("small-query", "large-query")
    }
    assert not found["small-query"]["small"]
    assert found["large-query"]["large"]


def test_chance_by_tensor_decides_where_there_is_a_layout(http: httpx.Client) -> None:
    """A stranger of S = .5, by the tensor that all hold, is unrelated; a child of .45 is not."""
    rng = np.random.default_rng(8)

    def drawn(norm: int, body: int) -> Support:
        inside = rng.choice(200, norm, replace=False)
        beyond = 200 + rng.choice(3_800, body, replace=False)
        return Support.from_indices(np.sort(np.concatenate([inside, beyond])), M)

    space = Space(http, M, layout=LAYOUT)
    base = drawn(180, 180)
    child = np.concatenate([rng.choice(base.indices, 162, replace=False), 200 + np.arange(198)])
    space.put("target", base)
    space.put("stranger", drawn(190, 170))
    space.put("child", Support.from_indices(np.unique(child), M))
    answer = donors(space, "similarity")
    items = {item["model"]: item for item in answer["items"]}
    assert items["stranger"]["similarity"] > items["child"]["similarity"] > 0.4
    assert [("stranger", True, False), ("child", False, True)] == shares(answer)
    assert ["child"] == [item["model"] for item in donors(space, "cover")["items"]][:1]
    assert items["stranger"]["kappa"] < 0.1 < items["child"]["kappa"]


def test_an_empty_answer_says_so(http: httpx.Client, strangers: Space) -> None:
    """Without another model, and with filters that none passes, the note is the reason."""
    alone = filled(http, {})
    for method in ("similarity", "idf", "cover"):
        empty = donors(alone, method)
        assert ([], True) == (empty["items"], "no other model" in empty["note"])
        filtered = donors(strangers, method, min_similarity=0.9)
        assert ([], True) == (filtered["items"], "no donor" in filtered["note"])


def test_the_client_passes_it_on(strangers: Space) -> None:
    """``include_unrelated`` reaches the service, and the answer's types have what it says."""
    with Client(str(strangers.http.base_url)) as client:
        found = client.donors(strangers.name, "target", k=3)
        asked = client.donors(strangers.name, "target", k=3, include_unrelated=True)
    assert [(True, 0.0)] * 3 == [(donor.unrelated, donor.weight) for donor in found]
    assert 1.0 == pytest.approx(sum(donor.weight for donor in asked))
    assert found.note is not None
    assert "none of these 3" in found.note
    assert json.dumps({"unrelated": True})[1:-1] in json.dumps(
        strangers.find(TARGET.to_bytes(), what="donors", exclude="target")
    )
