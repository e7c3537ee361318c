"""Spaces of data subspaces over HTTP: every answer is that of the same comparison here."""

from __future__ import annotations

import base64
import io
import json
import warnings
from typing import Any

import httpx
import numpy as np
import pytest

from demo.planted import Clients, newcomers
from modelkin import FewSamplesWarning, Subspace, affinity, fit_subspace, principal_angles
from modelkin.core.subspaces.affinity import affinities
from tests.support.http_space import JSON, SUPPORT, Space, assert_problem, ok

SUBSPACE, NPY = "application/vnd.modelkin.subspace", "application/x-npy"
KNOWN, NEW = newcomers("rotations", known=True, num_clients=24, num_newcomers=8)


def fingerprints(clients: Clients) -> list[Subspace]:
    """As a client makes them that accepts what few samples show, and as the service gets them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FewSamplesWarning)
        made = [
            fit_subspace(x, y, samples_per_direction=1)
            for x, y in zip(clients.samples, clients.labels, strict=True)
        ]
    return [Subspace.from_bytes(each.to_bytes()) for each in made]


STORED = {f"ward-{row:02d}": each for row, each in enumerate(fingerprints(KNOWN))}
GROUPS = dict(zip(STORED, KNOWN.groups.tolist(), strict=True))
ARRIVING = fingerprints(NEW)


def new_space(http: httpx.Client, m: int = 64, **spec: Any) -> Space:
    return Space(http, m, kind="subspaces", subspaces=spec)


def put(space: Space, model: str, subspace: Subspace, **headers: str) -> httpx.Response:
    headers = {"Content-Type": SUBSPACE, **headers}
    return space.http.put(
        space.path("subspaces", model), content=subspace.to_bytes(), headers=headers
    )


def ask(space: Space, kind: str, subspace: Subspace, **params: Any) -> httpx.Response:
    """A query whose subject is the body."""
    headers = {"Content-Type": SUBSPACE}
    return space.http.post(
        space.path(kind), content=subspace.to_bytes(), headers=headers, params=params
    )


@pytest.fixture(scope="module")
def wards(http: httpx.Client) -> Space:
    """24 clients in four groups, which turn their images each in its own way."""
    space = new_space(http, features="8x8 grey")
    for number, (name, subspace) in enumerate(STORED.items()):
        put(space, name, subspace).raise_for_status()
        if number % 2:
            tagged = space.http.patch(space.path("models", name), json={"tags": ["odd"]})
            assert 200 == tagged.status_code
    return space


def nearest(subspace: Subspace, but: str = "", compare: Any = "classes") -> list[tuple[str, float]]:
    """All stored models by S, best first."""
    found = [(n, affinity(subspace, s, compare=compare)) for n, s in STORED.items() if n != but]
    return sorted(found, key=lambda pair: (-pair[1], pair[0]))


def test_a_space_says_what_its_subspaces_share(wards: Space) -> None:
    """What only supports have is null."""
    shown = wards.show()
    assert "subspaces" == shown["kind"]
    spec = {
        "features": "8x8 grey",
        "constant": 0.5,
        "weighting": "spectrum",
        "compare": "classes",
        "max_columns": 256,
    }
    assert spec == shown["subspaces"]
    assert [shown[name] for name in ("signature", "banding", "support_size", "layout")] == [
        None
    ] * 4
    assert (24, 0, 0) == (shown["models"], shown["supports"], shown["signatures"])


def test_the_same_space_again_is_the_same(http: httpx.Client) -> None:
    """Another of the name is a conflict, also one of supports."""
    body = {"name": "twice-wards", "num_parameters": 64, "kind": "subspaces"}
    assert 201 == http.post("/v1/spaces", json=body).status_code
    assert 200 == http.post("/v1/spaces", json=body).status_code
    for other in (
        body | {"num_parameters": 65},
        body | {"subspaces": {"constant": 1.0}},
        {"name": "twice-wards", "num_parameters": 64},
    ):
        assert_problem(http.post("/v1/spaces", json=other), 409, "space_exists")


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"num_parameters": 1}, "2 to 65535"),
        ({"num_parameters": 65_536}, "2 to 65535"),
        ({"num_parameters": None}, "2 to 65535"),
        ({"subspaces": {"constant": -1}}, "at least"),
        ({"subspaces": {"weighting": "energy"}}, "spectrum"),
        ({"subspaces": {"max_columns": 0}}, "at least"),
        ({"subspaces": {"features": "x" * 201}}, "200"),
        ({"signature": {"num_perm": 64}}, "signature is of supports"),
        ({"layout": [{"name": "w", "shape": [64]}]}, "layout is of supports"),
        ({"kind": "supports", "subspaces": {}}, "kind subspaces"),
        ({"kind": "both"}, "supports"),
    ],
)
def test_bad_spaces_are_refused(http: httpx.Client, more: dict[str, Any], says: str) -> None:
    """Each with what is wrong."""
    body = {"name": "bad-wards", "num_parameters": 64, "kind": "subspaces"} | more
    answer = http.post("/v1/spaces", json=body)
    assert 422 == answer.status_code
    assert says in answer.text


def test_a_subspace_comes_back(wards: Space) -> None:
    """In its own format byte for byte, and as arrays and JSON."""
    subspace, path = STORED["ward-03"], wards.path("subspaces", "ward-03")
    native = wards.http.get(path)
    assert (subspace.to_bytes(), SUBSPACE) == (native.content, native.headers["Content-Type"])
    document = ok(wards.http.get(path, headers={"Accept": JSON}))
    assert [None, *subspace.labels] == [block["label"] for block in document["blocks"]]
    columns = np.load(io.BytesIO(wards.http.get(path, headers={"Accept": NPY}).content))
    assert (65, subspace.num_columns) == columns.shape
    assert columns[:, 0].tolist() == subspace.blocks[0].columns[0].tolist()
    model = wards.model("ward-03")
    shown = [model[name] for name in ("kind", "digest", "support_size", "verified")]
    assert ["subspace", subspace.digest, subspace.num_columns, False] == shown


def test_the_same_subspace_again_changes_nothing(http: httpx.Client) -> None:
    """Another is the next revision, with its S to the one before and to the first."""
    space, (first, second, third) = new_space(http), list(STORED.values())[:3]
    created = put(space, "a", first)
    assert (201, 200) == (created.status_code, put(space, "a", first).status_code)
    for condition in ({"If-Match": '"x"'}, {"If-None-Match": "*"}):
        assert_problem(put(space, "a", second, **condition), 412, "precondition_failed")
    assert 200 == put(space, "a", second, **{"If-Match": created.headers["ETag"]}).status_code
    put(space, "a", third)
    revisions = ok(space.http.get(space.path("revisions", "a")))["items"]
    assert ["subspace"] * 3 == [each["kind"] for each in revisions]
    newest = next(each for each in revisions if each["revision"] == 3)
    for field, other in (("previous", second), ("first", first)):
        expected = affinity(third, other)
        assert abs(expected / (2 - expected) - newest[f"self_overlap_{field}"]) < 1e-6
        assert abs(expected - newest[f"similarity_{field}"]) < 1e-6
        assert "exact" == newest[f"estimate_{field}"]
    assert 1 == space.show()["models"]


@pytest.mark.parametrize("compare", ["classes", "whole"])
def test_neighbors_are_those_of_all_affinities(wards: Space, compare: str) -> None:
    """In their order, with exact similarities; the model itself is left out."""
    params: dict[str, Any] = {"model": "ward-05", "k": 7, "compare": compare}
    answer = ok(wards.http.get(wards.path("neighbors"), params=params))
    expected = nearest(STORED["ward-05"], "ward-05", compare)[:7]
    assert [name for name, _ in expected] == [item["model"] for item in answer["items"]]
    for (_, similarity), item in zip(expected, answer["items"], strict=True):
        assert abs(similarity - item["similarity"]) < 1e-6
        assert ("exact", 0.0, None) == (
            item["estimate"],
            item["standard_error"],
            item["shared_indices"],
        )
    assert ("exact", 23) == (answer["method"], answer["candidates"])


def test_neighbors_of_a_subspace_that_is_not_stored(wards: Space) -> None:
    """With a least similarity, and among the models of a tag."""
    answer = ok(ask(wards, "neighbors", ARRIVING[2], k=24, min_similarity=0.3, tag="odd"))
    expected = [
        (name, s) for name, s in nearest(ARRIVING[2]) if s >= 0.3 and int(name[-2:]) % 2 == 1
    ]
    assert [name for name, _ in expected] == [item["model"] for item in answer["items"]]
    assert 12 == answer["candidates"]


@pytest.mark.slow
def test_a_write_shows_at_once(http: httpx.Client) -> None:
    """Of many writes one by one each is in the next answer, and what is deleted is not."""
    space, subspaces = new_space(http), list(STORED.values())
    for number, subspace in enumerate(subspaces):
        put(space, f"m{number:02d}", subspace).raise_for_status()
        found = ok(ask(space, "neighbors", subspace, k=1))["items"][0]
        assert (f"m{number:02d}", True) == (found["model"], found["similarity"] > 0.999)
    put(space, "m00", subspaces[1]).raise_for_status()
    assert 204 == space.http.delete(space.path("models", "m01")).status_code
    left = ok(ask(space, "neighbors", subspaces[1], k=24))["items"]
    assert ("m00", 23) == (left[0]["model"], len(left))


def test_the_matrix_is_that_of_all_pairs(wards: Space) -> None:
    """By classes and by whole; kappa needs chance, which data do not have."""
    names = ["ward-09", "ward-00", "ward-21"]
    for compare in ("classes", "whole"):
        url, body = wards.path("similarity"), {"models": names}
        found = ok(wards.http.post(url, json=body, params={"compare": compare}))
        expected = affinities([STORED[name] for name in names], compare)
        assert np.abs(expected - np.array(found["similarity"])).max() < 1e-6
    refused = wards.http.post(url, json=body, params={"measure": "kappa"})
    assert_problem(refused, 422, "invalid_parameter")


def test_an_overlap_has_the_principal_angles(wards: Space) -> None:
    """Of each block that both have, in degrees."""
    params = {"a": "ward-00", "b": "ward-01"}
    found = ok(wards.http.get(wards.path("overlap"), params=params))
    one, other = STORED["ward-00"], STORED["ward-01"]
    assert abs(affinity(one, other) - found["similarity"]) < 1e-9
    expected = principal_angles(one, other)
    assert list(expected) == [block["label"] for block in found["angles"]]
    for block in found["angles"]:
        assert np.abs(np.degrees(expected[block["label"]]) - block["degrees"]).max() < 1e-9
    assert (None, None) == (found["shared_indices"], found["tensors"])


def test_the_graph_has_the_nearest_edges(wards: Space) -> None:
    """All of them exact, and those beyond a threshold likewise."""
    found = ok(wards.http.get(wards.path("graph"), params={"k": 2}))
    assert {"subspace"} == {node["kind"] for node in found["nodes"]}
    pairs = {frozenset((edge["source"], edge["target"])) for edge in found["edges"]}
    for name, subspace in STORED.items():
        for other, _ in nearest(subspace, name)[:2]:
            assert frozenset((name, other)) in pairs
    assert {"exact"} == {edge["estimate"] for edge in found["edges"]}
    found = ok(wards.http.get(wards.path("graph"), params={"threshold": 0.5}))
    gram = affinities(list(STORED.values()), "classes")
    assert int((np.triu(gram, 1) >= 0.5).sum()) == len(found["edges"])


def test_donors_are_the_nearest(wards: Space) -> None:
    """With weights that sum to 1, and a reason; methods that read supports are of another kind."""
    found = ok(ask(wards, "donors", ARRIVING[1], k=5))
    assert [name for name, _ in nearest(ARRIVING[1])[:5]] == [i["model"] for i in found["items"]]
    assert abs(1 - sum(item["weight"] for item in found["items"])) < 1e-9
    assert "its data have a similarity of" in found["items"][0]["why"]["sentence"]
    for method in ("idf", "cover"):
        assert_problem(ask(wards, "donors", ARRIVING[1], method=method), 409, "wrong_kind")


def test_a_batch_takes_subspaces(http: httpx.Client) -> None:
    """Each line as its own put; a broken one spoils no other."""
    space = new_space(http)
    lines = [
        {"model": name, "subspace": base64.b64encode(each.to_bytes()).decode(), "tags": ["t"]}
        for name, each in STORED.items()
    ]
    lines[3] = {"model": "ward-03", "subspace": "AAAA"}
    lines[4] = {"model": "ward-04", "support": "AAAA"}
    lines[5]["subspace"] = base64.b64encode(
        fit_subspace(np.eye(65)[:30] + 1, samples_per_direction=1).to_bytes()
    ).decode()
    body = "\n".join(map(json.dumps, lines))
    headers = {"Content-Type": "application/jsonl"}
    answer = space.http.post(space.path("batch"), content=body, headers=headers)
    results = [json.loads(line) for line in answer.text.splitlines()]
    failed = {r["model"]: r["error"]["code"] for r in results if r["status"] == "failed"}
    assert {
        "ward-03": "invalid_subspace",
        "ward-04": "invalid_support",
        "ward-05": "space_mismatch",
    } == failed
    assert 21 == space.show()["models"]
    assert STORED["ward-07"].digest == space.model("ward-07")["digest"]


def test_calls_for_the_other_kind_name_the_one_to_use(wards: Space, space: Space) -> None:
    """Supports, signatures and what is derived from them are not of a space of data."""
    typed = {"headers": {"Content-Type": SUPPORT}, "content": b"x"}
    for method, path, more in (
        ("PUT", wards.path("supports", "m"), typed),
        ("GET", wards.path("supports", "ward-00"), {}),
        ("GET", wards.path("signatures", "ward-00"), {}),
        ("GET", wards.path("sketches", "ward-00"), {}),
        ("GET", wards.path("support-size"), {}),
        ("GET", wards.path("tensors"), {}),
        ("GET", wards.path("lineage"), {"params": {"model": "ward-00"}}),
        ("POST", wards.path("jobs"), {"json": {"kind": "rebuild_buckets"}}),
    ):
        detail = assert_problem(wards.http.request(method, path, **more), 409, "wrong_kind")
        assert f"/v1/spaces/{wards.name}/subspaces/" in detail
    for answer in (
        put(space, "m", STORED["ward-00"]),
        space.http.get(space.path("subspaces", "m")),
        ask(space, "neighbors", STORED["ward-00"]),
    ):
        assert_problem(answer, 409, "wrong_kind")
    headers = {"Content-Type": SUPPORT}
    answer = wards.http.post(wards.path("neighbors"), content=b"x", headers=headers)
    assert_problem(answer, 409, "wrong_kind")
    params: dict[str, Any] = {"model": "m", "compare": "whole"}
    assert 404 == space.http.get(space.path("neighbors"), params=params).status_code


def test_bad_subspaces_are_refused(http: httpx.Client) -> None:
    """With the byte, the field or the difference that is wrong; nothing is stored."""
    space = new_space(http, max_columns=8)
    small = {"samples_per_direction": 1, "rank": 1, "whole_rank": 2}
    x = np.random.default_rng(0).normal(size=(30, 64))
    fits = fit_subspace(x, **small)  # type: ignore[arg-type]
    other_m = fit_subspace(x[:, :63], **small)  # type: ignore[arg-type]
    other_constant = fit_subspace(x, constant=1.0, **small)  # type: ignore[arg-type]
    flat = fit_subspace(x, weighting="flat", **small)  # type: ignore[arg-type]
    for wrong in (other_m, other_constant, flat):
        assert_problem(put(space, "m", wrong), 409, "space_mismatch")
    wide = fit_subspace(x, whole_rank=9, samples_per_direction=1)
    assert_problem(put(space, "m", wide), 413, "payload_too_large")
    url = space.path("subspaces", "m")
    for media_type, content, status, code in (
        (SUBSPACE, fits.to_bytes()[:-1], 422, "invalid_subspace"),
        (NPY, b"\x93NUMPY\x01\x00", 422, "invalid_subspace"),
        (JSON, b'{"blocks": [{"columns": [["a"]]}]}', 422, "invalid_subspace"),
        (JSON, b"[" * 10_000, 422, "invalid_subspace"),
        ("text/plain", b"x", 415, "unsupported_media_type"),
    ):
        answer = space.http.put(url, content=content, headers={"Content-Type": media_type})
        assert_problem(answer, status, code)
    assert 0 == space.show()["models"]


def test_a_basis_made_elsewhere_is_taken_as_an_array(http: httpx.Client) -> None:
    """Any basis of a span, in a space of flat weights."""
    space = new_space(http, m=20, weighting="flat", constant=0.0, compare="whole")
    rng = np.random.default_rng(1)
    basis = rng.normal(size=(20, 4))
    for name, matrix in (("a", basis), ("b", np.asfortranarray(basis @ rng.normal(size=(4, 4))))):
        file = io.BytesIO()
        np.save(file, matrix)
        headers = {"Content-Type": NPY}
        answer = space.http.put(
            space.path("subspaces", name), content=file.getvalue(), headers=headers
        )
        assert 201 == answer.status_code, answer.text
    found = ok(space.http.get(space.path("neighbors"), params={"model": "a"}))["items"]
    assert abs(1 - found[0]["similarity"]) < 1e-3
