"""Maps over HTTP: requested, drawn by a job, read, replaced, and what their page asks for."""

from __future__ import annotations

import time
from typing import Any

import httpx
import numpy as np
import pytest

import modelkin
from modelkin import BulkItem
from tests.support.fixtures import on_one_database
from tests.support.http_space import Space, assert_problem, ok
from tests.support.models.planted_clusters import GROUPS, M, named, planted
from tests.support.servers.server_process import Server


@pytest.fixture(scope="module")
def http(working_http: httpx.Client) -> httpx.Client:
    """HTTP to a service that does its own jobs."""
    return working_http


@pytest.fixture(scope="module")
def kin(http: httpx.Client) -> Space:
    """A space with four tagged groups of models, and a map; tests change no model."""
    made = Space(http, M)
    supports, labels = planted(GROUPS)
    put_all(
        made,
        [
            BulkItem(name, support, tags=["all", f"group-{label}"], attributes={"group": label})
            for (name, support), label in zip(named(supports).items(), labels.tolist(), strict=True)
        ],
    )
    draw(made)
    return made


def put_all(space: Space, items: list[BulkItem]) -> None:
    """Store models with their tags and attributes."""
    with modelkin.Client(str(space.http.base_url)) as client:
        assert 0 == client.put_many(space.name, items).failed


def draw(space: Space, **body: Any) -> dict[str, Any]:
    """A new map."""
    answer = space.http.post(space.path("maps"), json=body)
    assert answer.status_code == 202, answer.text
    for _ in range(600):
        job = ok(space.http.get(answer.headers["Location"]))
        if job["state"] in {"succeeded", "failed", "cancelled"}:
            break
        time.sleep(0.05)
    assert job["state"] == "succeeded", job
    return ok(space.http.get(job["result"]["url"]))


def latest(space: Space) -> dict[str, Any]:
    """The newest map."""
    return ok(space.http.get(space.path("maps/latest")))


def places(drawn: dict[str, Any]) -> np.ndarray:
    """The places of a map."""
    return np.stack([drawn["x"], drawn["y"]], axis=1)


def page(space: Space, path: str, **params: Any) -> httpx.Response:
    """What the page of the map asks for."""
    return space.http.get(f"/spaces/{space.name}/map/{path}", params=params)


@on_one_database
def test_a_map_places_groups_apart(kin: Space) -> None:
    """Every model is nearer to its own group than to any other, and the facts are there."""
    drawn = latest(kin)
    _, labels = planted(GROUPS)
    assert drawn["models"] == sorted(named(planted(GROUPS)[0]))
    assert (kin.name, "exact", 0) == (drawn["space"], drawn["similarity"], drawn["changed_models"])
    assert {"neighbors": 15, "seed": 0, "similarity": "auto"} == drawn["parameters"]
    assert drawn["edges"] > len(labels)
    at = places(drawn)
    far = np.hypot(*(at[:, None] - at[None]).transpose(2, 0, 1))
    means = np.stack([far[:, labels == group].mean(axis=1) for group in range(4)], axis=1)
    assert np.array_equal(labels, means.argmin(axis=1))


def test_the_same_request_gives_the_same_places(kin: Space) -> None:
    """A repetition replaces the map by an equal one; another seed or fewer neighbours do not."""
    first = latest(kin)
    again = draw(kin)
    assert first["id"] != again["id"]
    assert np.array_equal(places(first), places(again))
    other = draw(kin, seed=7, neighbors=3, similarity="signature")
    assert "signature" == other["similarity"]
    assert not np.array_equal(places(first), places(other))
    draw(kin)


def test_a_pending_request_is_not_repeated(http: httpx.Client) -> None:
    """The same request, while its job is unfinished, is that job."""
    space = Space(http, M)
    space.put_all(named(planted((5, 5))[0]))
    first, second = (http.post(space.path("maps"), json={}).json()["id"] for _ in range(2))
    jobs = ok(http.get("/v1/jobs", params={"space": space.name, "kind": "map"}))["items"]
    assert {first, second} == {job["id"] for job in jobs}


def test_a_map_tells_what_is_newer(http: httpx.Client) -> None:
    """New and changed models count, deleted ones stay on the map; the next map has them all."""
    space = Space(http, M)
    supports = named(planted((4, 4, 4))[0])
    held = dict(list(supports.items())[:10])
    put_all(space, [BulkItem(*item) for item in held.items()])
    draw(space)
    space.put_all(dict(list(supports.items())[10:]))
    ok(http.patch(space.path("models", "org/m000"), json={"attributes": {"a": 1}}))
    assert 204 == http.delete(space.path("models", "org/m001")).status_code
    old = latest(space)
    assert (sorted(held), 3) == (old["models"], old["changed_models"])
    new = draw(space)
    assert (11, 0) == (len(new["models"]), new["changed_models"])


def test_signatures_alone_make_a_map(http: httpx.Client) -> None:
    """Without a support everything is estimated."""
    space = Space(http, M)
    for name, support in named(planted((5, 4))[0]).items():
        space.put_signature(name, support.signature())
    assert "signature" == draw(space)["similarity"]


def test_data_subspaces_make_a_map(working: Server, http: httpx.Client) -> None:
    """Clients with like data lie near each other."""
    with modelkin.Client(working.url) as client:
        client.ensure_space("mapped-clients", num_parameters=16, kind="subspaces")
        for place in range(6):
            rng = np.random.default_rng(place)
            mixing = np.random.default_rng(place // 3).normal(size=(4, 16))
            data = rng.normal(size=(200, 4)) @ mixing + 0.1 * rng.normal(size=(200, 16))
            subspace = modelkin.fit_subspace(data, rng.integers(0, 2, 200))
            client.subspaces.put("mapped-clients", f"hospital-{place}", subspace)
    space = Space.existing(http, "mapped-clients", 16)
    at = places(draw(space, compare="whole"))
    far = np.hypot(*(at[:, None] - at[None]).transpose(2, 0, 1))
    assert far[:3, :3].max() < far[:3, 3:].min()


def test_what_cannot_be_drawn_is_refused(http: httpx.Client, kin: Space) -> None:
    """Too few models, a wrong parameter, and a map that was never drawn: each says what to do."""
    space = Space(http, M)
    assert "2 models or more" in assert_problem(
        http.post(space.path("maps"), json={}), 422, "invalid_parameter"
    )
    space.put("alone", planted((1,))[0][0])
    assert "one model" in assert_problem(
        http.post(space.path("maps"), json={}), 422, "invalid_parameter"
    )
    for body, field in (
        ({"neighbors": 0}, "neighbors"),
        ({"seed": -1}, "seed"),
        ({"compare": "whole"}, "compare"),
        ({"kind": "x"}, "kind"),
    ):
        assert_problem(kin.http.post(kin.path("maps"), json=body), 422, "invalid_parameter", field)
    assert "POST" in assert_problem(http.get(space.path("maps/latest")), 404, "map_not_found")


def test_a_page_takes_places_as_they_are_stored(kin: Space) -> None:
    """Compressed where that is accepted, the same without; known ones are not sent again."""
    drawn = latest(kin)
    packed = page(kin, "places")
    plain = kin.http.get(f"/spaces/{kin.name}/map/places", headers={"Accept-Encoding": "identity"})
    assert "gzip" == packed.headers["Content-Encoding"]
    assert "Content-Encoding" not in plain.headers
    assert packed.json() == plain.json() == {key: drawn[key] for key in ("models", "x", "y")}
    again = kin.http.get(packed.url, headers={"If-None-Match": packed.headers["ETag"]})
    assert (304, b"") == (again.status_code, again.content)


def test_a_map_is_coloured_by_what_models_have_in_common(kin: Space) -> None:
    """Tags, an attribute's values, ranges of its numbers, and clusters; without a choice, tags."""
    _, labels = planted(GROUPS)
    choices = ok(page(kin, "choices"))["choices"]
    assert {"tag", "tag:all", "tag:group-0", "attribute:group"} < set(choices)
    assert "cluster" not in choices
    by_tag = ok(page(kin, "colors"))
    assert "tag" == by_tag["by"]
    names = [group["name"] for group in by_tag["coloring"]["groups"]]
    codes = by_tag["coloring"]["codes"]
    assert [f"group-{label}" for label in labels] == [names[code] for code in codes]
    one = ok(page(kin, "colors", by="tag:group-1"))["coloring"]
    assert [0 if label == 1 else -1 for label in labels] == one["codes"]
    values = ok(page(kin, "colors", by="attribute:group"))["coloring"]
    assert "categories" == values["kind"]
    assert list(map(str, labels)) == [values["groups"][code]["name"] for code in values["codes"]]
    for nothing in ("nothing", "attribute:none", "cluster"):
        assert {-1} == set(ok(page(kin, "colors", by=nothing))["coloring"]["codes"])


def test_a_map_of_a_hub_is_coloured_by_bases_and_owners(http: httpx.Client) -> None:
    """By declared bases where nothing else groups models; a name without a slash has no owner."""
    space = Space(http, M)
    supports = list(named(planted((3, 2))[0]).values())
    names = ["acme/a", "acme/b", "other/c", "other/d", "plain"]
    bases = ["acme/base", "acme/base", "acme/base", "other/base", None]
    put_all(
        space,
        [
            BulkItem(name, support, base_model=base)
            for name, support, base in zip(names, supports, bases, strict=True)
        ],
    )
    draw(space)
    assert ["base", "owner"] == ok(page(space, "choices"))["choices"]
    first = ok(page(space, "colors"))
    assert "base" == first["by"]
    assert {"acme/base": 3, "other/base": 1} == {
        group["name"]: group["count"] for group in first["coloring"]["groups"]
    }
    owners = ok(page(space, "colors", by="owner"))["coloring"]
    groups = [owners["groups"][code]["name"] if code >= 0 else None for code in owners["codes"]]
    assert ["acme", "acme", "other", "other", None] == groups


def test_a_map_has_as_many_colours_as_one_can_tell_apart(http: httpx.Client) -> None:
    """Of many values the frequent ones; many numbers are ranges of about as many models each."""
    space = Space(http, M)
    items = []
    for number, (name, support) in enumerate(named(planted((30, 30))[0]).items()):
        attributes = {"loss": number / 10, "run": f"run {number // 2}", "id": name}
        items.append(BulkItem(name, support, attributes=attributes))
    put_all(space, items)
    draw(space)
    loss = ok(page(space, "colors", by="attribute:loss"))["coloring"]
    assert "ranges" == loss["kind"]
    assert loss["codes"] == sorted(loss["codes"])
    assert {8, 9} >= {group["count"] for group in loss["groups"]}
    run = ok(page(space, "colors", by="attribute:run"))["coloring"]
    assert (24, 6) == (len(run["groups"]), run["others"])
    assert [] == ok(page(space, "colors", by="attribute:id"))["coloring"]["groups"]


def test_colours_follow_what_models_have_in_common(http: httpx.Client) -> None:
    """A changed tag is seen at the next visit, and so are the clusters of a new clustering."""
    space = Space(http, M)
    supports = named(planted((5, 5))[0])
    put_all(space, [BulkItem(name, support, tags=["old"]) for name, support in supports.items()])
    drawn = draw(space)
    for _ in range(2):
        assert [{"name": "old", "count": 10}] == groups(space, "tag")
    ok(http.patch(space.path("models", drawn["models"][0]), json={"tags": ["new"]}))
    expected = [{"name": "old", "count": 9}, {"name": "new", "count": 1}]
    assert expected == groups(space, "tag")
    assert 204 == http.delete(space.path("models", drawn["models"][1])).status_code
    assert {"name": "old", "count": 8} in groups(space, "tag")
    assert [] == groups(space, "cluster")
    for wanted in (2, 3):
        cluster(space, wanted)
        assert wanted == len(groups(space, "cluster"))


@on_one_database
@pytest.mark.slow
def test_models_newer_than_the_clustering_are_in_no_other_group(http: httpx.Client) -> None:
    """One that came later has a code of its own, unlike one that was there and was deleted."""
    space = Space(http, M)
    supports = named(planted((4, 4))[0])
    *before, late = supports
    put_all(space, [BulkItem(name, supports[name]) for name in before])
    cluster(space, 2)
    put_all(space, [BulkItem(late, supports[late])])
    drawn = draw(space)
    codes = ok(page(space, "colors", by="cluster"))["coloring"]["codes"]
    found = dict(zip(drawn["models"], codes, strict=True))
    assert -2 == found.pop(late)
    assert {0, 1} == set(found.values())
    assert {-1} == set(ok(page(space, "colors", by="tag:none"))["coloring"]["codes"])
    assert 204 == http.delete(space.path("models", before[0])).status_code
    cluster(space, 2)
    codes = ok(page(space, "colors", by="cluster"))["coloring"]["codes"]
    assert [before[0]] == [m for m, code in zip(drawn["models"], codes, strict=True) if code < 0]
    assert -1 == min(codes)


def groups(space: Space, by: str) -> list[dict[str, Any]]:
    """The groups by which the map is coloured."""
    found: list[dict[str, Any]] = ok(page(space, "colors", by=by))["coloring"]["groups"]
    return found


def cluster(space: Space, clusters: int) -> None:
    """A new clustering, into so many clusters."""
    body = {"algorithm": "agglomerative", "n_clusters": clusters}
    answer = space.http.post(space.path("clusterings"), json=body)
    assert answer.status_code == 202, answer.text
    end = time.monotonic() + 60
    while ok(space.http.get(answer.headers["Location"]))["finished_at"] is None:
        assert time.monotonic() < end
        time.sleep(0.05)
