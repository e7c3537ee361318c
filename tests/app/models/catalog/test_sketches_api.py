"""Sketches over HTTP: sent beside a signature, made of a support, and the estimates they give."""

from __future__ import annotations

import base64
import json
from typing import Any

import httpx
import numpy as np
import pytest

import modelkin
from modelkin import BulkItem, Sketch, Support
from modelkin.wire import signature_to_json
from tests.support.fixtures import on_one_database
from tests.support.http_space import (
    SIGNATURE,
    Space,
    assert_problem,
    ok,
    random_support,
    ranking,
    related,
    true_similarity,
)

pytestmark = on_one_database

SKETCH = "application/vnd.modelkin.sketch"
M, K = 200_000, 16_000
RNG = np.random.default_rng(3)
BASE = random_support(RNG, M, K)
KIN = {f"kin{i}": related(RNG, BASE, i / 10) for i in (2, 5, 9)}


@pytest.fixture
def wide(http: httpx.Client) -> Space:
    """An empty space whose sample is a third of its parameters."""
    return Space(http, M)


def put(space: Space, model: str, sketch: Sketch | bytes, **headers: str) -> httpx.Response:
    """PUT a sketch; return the response."""
    data = sketch if isinstance(sketch, bytes) else sketch.to_bytes()
    url, headers = space.path("sketches", model), {"Content-Type": SKETCH, **headers}
    return space.http.put(url, content=data, headers=headers)


def get(space: Space, model: str) -> httpx.Response:
    """GET of a sketch."""
    return space.http.get(space.path("sketches", model))


def items(answer: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The neighbours by name."""
    return {item["model"]: item for item in answer["items"]}


def assert_sketched(item: dict[str, Any], a: Support, b: Support) -> None:
    """``item`` has the estimate of the two sketches, which is nearly right."""
    one, other = a.sketch(), b.sketch()
    assert ("sketch", None) == (item["estimate"], item["shared_indices"])
    expected = one.similarity(other), one.standard_error(other)
    assert expected == pytest.approx((item["similarity"], item["standard_error"]))
    assert item["jaccard"] == pytest.approx(expected[0] / (2 - expected[0]))
    assert abs(item["similarity"] - true_similarity(a, b)) < 5 * item["standard_error"] < 0.04


def test_a_sketch_is_stored_beside_a_signature(wide: Space) -> None:
    """201 with the model, whose version moves on and whose revision stays; the same bytes back."""
    before = wide.put_signature("org/a", BASE.signature())
    answer = put(wide, "org/a", BASE.sketch())
    model = answer.json()
    assert (201, "signature", 1, before["version"] + 1) == (
        answer.status_code,
        *(model[field] for field in ("kind", "revision", "version")),
    )
    assert wide.etag("org/a") == answer.headers["ETag"]
    back = get(wide, "org/a")
    assert (SKETCH, BASE.sketch().to_bytes()) == (back.headers["content-type"], back.content)
    assert back.headers["ETag"] == answer.headers["ETag"]


def test_the_same_sketch_again_changes_nothing(wide: Space) -> None:
    """A repeated PUT is a 200 without a new version; another sketch is a 200 with one."""
    wide.put_signature("a", BASE.signature())
    first = put(wide, "a", BASE.sketch())
    again = put(wide, "a", BASE.sketch())
    assert (200, first.json()) == (again.status_code, again.json())
    other = put(wide, "a", KIN["kin9"].sketch())
    assert (200, first.json()["version"] + 1) == (other.status_code, other.json()["version"])
    assert KIN["kin9"].sketch().to_bytes() == get(wide, "a").content


def test_a_support_has_its_sketch_made_here(wide: Space) -> None:
    """A GET for a support answers what ``support.sketch()`` makes, in small spaces too."""
    wide.put("a", BASE)
    assert BASE.sketch().to_bytes() == get(wide, "a").content
    small = Space(wide.http, 10_000)
    for name, support in (("bitmap", range(0, 10_000, 7)), ("list", range(0, 10_000, 900))):
        stored = Support.from_indices(support, 10_000)
        small.put(name, stored)
        assert stored.sketch().to_bytes() == get(small, name).content


@pytest.mark.parametrize("method", ["exact", "scan"])
def test_sketches_are_sharper_than_signatures(wide: Space, method: str) -> None:
    """S is within its error, a quarter of a signature's.

    That holds between a support and a sketch, between two sketches, and for a support in a body.
    """
    for name, support in KIN.items():
        wide.put_signature(name, support.signature())
        ok(put(wide, name, support.sketch()))
    wide.put("support", BASE)
    wide.put_signature("base", BASE.signature())
    ok(put(wide, "base", BASE.sketch()))
    for asked in (
        wide.neighbors("support", method=method),
        wide.neighbors("base", method=method),
        wide.find(BASE.to_bytes(), method=method),
    ):
        found = items(asked)
        for name, support in KIN.items():
            assert_sketched(found[name], BASE, support)
    names = [name for name, _ in ranking(wide.neighbors("base", method=method))]
    assert ["support", "kin9", "kin5", "kin2"] == names


@pytest.mark.parametrize("method", ["exact", "scan"])
def test_a_signature_in_a_body_stays_a_signature(wide: Space, method: str) -> None:
    """If one side has no sketch, all values of the signatures are compared."""
    wide.put_signature("a", KIN["kin9"].signature())
    ok(put(wide, "a", KIN["kin9"].sketch()))
    wide.put("b", KIN["kin5"])
    found = items(wide.find(BASE.signature().to_bytes(), SIGNATURE, method=method))
    for name, support in (("a", KIN["kin9"]), ("b", KIN["kin5"])):
        jaccard = BASE.signature().jaccard(support.signature())
        assert ("signature", jaccard) == (found[name]["estimate"], found[name]["jaccard"])


def test_small_spaces_are_exact(http: httpx.Client) -> None:
    """If the sample is all of M, two sketches give the exact S, without an error."""
    space, rng = Space(http, 10_000), np.random.default_rng(1)
    base = random_support(rng, 10_000, 50)
    others = {f"o{i}": related(rng, base, i / 10) for i in range(1, 10)}
    for name, support in {"base": base, **others}.items():
        space.put_signature(name, support.signature())
        ok(put(space, name, support.sketch()))
    answer = space.neighbors("base", method="scan", k=9)
    truth = sorted(((true_similarity(base, s), n) for n, s in others.items()), reverse=True)
    assert [(name, similarity) for similarity, name in truth] == ranking(answer)
    assert {("sketch", 0.0)} == {(i["estimate"], i["standard_error"]) for i in answer["items"]}


def test_where_a_sketch_sees_little_the_signature_tells(http: httpx.Client) -> None:
    """A sample with fewer members than the signature has values is left alone."""
    m = 300_000
    space, rng = Space(http, m), np.random.default_rng(1)
    base = random_support(rng, m, 600)
    near = related(rng, base, 0.6)
    for name, support in (("base", base), ("near", near)):
        space.put_signature(name, support.signature())
        ok(put(space, name, support.sketch()))
    for method in ("exact", "scan"):
        (item,) = space.neighbors("base", method=method)["items"]
        assert "signature" == item["estimate"]
    (item,) = space.find(base.to_bytes(), method="scan", k=1)["items"]
    assert ("base", "signature") == (item["model"], item["estimate"])


def test_another_signature_drops_the_sketch(wide: Space) -> None:
    """The sketch belongs to the old signature; the same signature again keeps it."""
    wide.put_signature("a", BASE.signature())
    put(wide, "a", BASE.sketch())
    wide.put_signature("a", BASE.signature())
    assert 200 == get(wide, "a").status_code
    wide.put_signature("a", KIN["kin9"].signature())
    assert "sent only a signature" in assert_problem(get(wide, "a"), 409, "sketch_missing")
    (item,) = wide.find(KIN["kin9"].to_bytes(), k=1)["items"]
    assert ("signature", 1.0) == (item["estimate"], item["similarity"])


def test_a_support_takes_the_place_of_a_sketch(wide: Space) -> None:
    """A model that sends its support later is compared exactly, and loses its sketch."""
    wide.put_signature("a", BASE.signature())
    put(wide, "a", KIN["kin5"].sketch())
    wide.put("a", BASE)
    assert BASE.sketch().to_bytes() == get(wide, "a").content
    assert_problem(put(wide, "a", BASE.sketch()), 409, "support_exists")
    (item,) = wide.find(BASE.to_bytes(), k=1)["items"]
    assert ("exact", 1.0) == (item["estimate"], item["similarity"])


def test_a_deleted_model_leaves_no_sketch(wide: Space) -> None:
    """A new model of the name has none until it sends one."""
    for _ in range(2):
        wide.put_signature("a", BASE.signature())
        assert_problem(get(wide, "a"), 409, "sketch_missing")
        assert 201 == put(wide, "a", BASE.sketch()).status_code
        assert 204 == wide.http.delete(wide.path("models", "a")).status_code
        assert_problem(get(wide, "a"), 404, "model_not_found")


def test_If_Match_holds_for_sketches(wide: Space) -> None:
    """Another version of the model is a 412."""
    wide.put_signature("a", BASE.signature())
    answer = put(wide, "a", BASE.sketch(), **{"If-Match": '"stale"'})
    assert_problem(answer, 412, "precondition_failed")
    etag = wide.etag("a")
    assert 201 == put(wide, "a", BASE.sketch(), **{"If-Match": etag}).status_code
    assert_problem(put(wide, "a", BASE.sketch(), **{"If-Match": etag}), 412, "precondition_failed")


REFUSED: dict[str, tuple[bytes, int, str, str]] = {
    "another M": (
        Support.from_indices(range(K), M + 1).sketch().to_bytes(), 409, "space_mismatch",
        "200001",
    ),
    "another size": (BASE.sketch(size=4096).to_bytes(), 409, "space_mismatch", "size is 4096"),
    "another seed": (BASE.sketch(seed=2).to_bytes(), 409, "space_mismatch", "seed is 2"),
    "another K": (
        Support.from_indices(range(K + 1), M).sketch().to_bytes(), 422, "invalid_signature",
        f"{K + 1} indices",
    ),
    "a flipped bit": (
        BASE.sketch().to_bytes()[:-9] + b"\0" + BASE.sketch().to_bytes()[-8:], 422,
        "invalid_signature", "CRC-32",
    ),
    "cut": (BASE.sketch().to_bytes()[:-1], 422, "invalid_signature", ""),
    "nothing": (b"", 422, "invalid_signature", "ends after 0 bytes"),
    "a signature": (BASE.signature().to_bytes(), 422, "invalid_signature", ""),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_a_sketch_that_does_not_fit_is_refused(wide: Space, what: str) -> None:
    """The answer says what is wrong, and nothing is stored."""
    body, status, code, said = REFUSED[what]
    wide.put_signature("a", BASE.signature())
    before = wide.show(), wide.model("a")
    assert said in assert_problem(put(wide, "a", body), status, code)
    assert before == (wide.show(), wide.model("a"))
    assert_problem(get(wide, "a"), 409, "sketch_missing")


def test_a_sketch_needs_a_model(wide: Space) -> None:
    """404 without one, and 404 without a space; another media type is a 415, for reading a 406."""
    assert_problem(put(wide, "nobody", BASE.sketch()), 404, "model_not_found")
    assert_problem(get(wide, "nobody"), 404, "model_not_found")
    nowhere = Space.__new__(Space)
    nowhere.http, nowhere.m, nowhere.name = wide.http, M, "no-such-space"
    assert_problem(put(nowhere, "a", BASE.sketch()), 404, "space_not_found")
    wide.put_signature("a", BASE.signature())
    url = wide.path("sketches", "a")
    answer = wide.http.put(url, content=b"{}", headers={"Content-Type": "application/json"})
    assert_problem(answer, 415, "unsupported_media_type")
    put(wide, "a", BASE.sketch())
    answer = wide.http.get(url, headers={"Accept": "application/json"})
    assert_problem(answer, 406, "not_acceptable")


def line(model: str, support: Support, sketch: Any = None) -> dict[str, Any]:
    """A line of a batch."""
    fields = {"model": model, "signature": signature_to_json(support.signature())}
    if sketch is not None:
        data = sketch.to_bytes() if isinstance(sketch, Sketch) else sketch
        fields["sketch"] = base64.b64encode(data).decode()
    return fields


def batch(space: Space, *lines: dict[str, Any]) -> list[dict[str, Any]]:
    """The results of a batch."""
    body = b"".join(json.dumps(entry).encode() + b"\n" for entry in lines)
    headers = {"Content-Type": "application/jsonl"}
    answer = space.http.post(space.path("batch"), content=body, headers=headers)
    assert 200 == answer.status_code, answer.text
    return [json.loads(entry) for entry in answer.text.splitlines()]


def test_lines_carry_sketches(wide: Space) -> None:
    """A line stores signature and sketch at once; a changed sketch alone is ``replaced``.

    A line without a sketch keeps the stored one, unless the signature differs.
    """
    a, other = BASE.sketch(), KIN["kin9"]
    steps = [
        (line("a", BASE, a), "created", a),
        (line("a", BASE, a), "unchanged", a),
        (line("a", BASE), "unchanged", a),
        (line("a", BASE, other.sketch()), "replaced", other.sketch()),
        (line("a", other, other.sketch()) | {"tags": ["t"]}, "replaced", other.sketch()),
        (line("a", BASE), "replaced", None),
        (line("a", BASE, a) | {"tags": ["u"]}, "replaced", a),
    ]
    for entry, status, sketch in steps:
        assert [{"model": "a", "status": status}] == batch(wide, entry)
        answer = get(wide, "a")
        assert (200 if sketch else 409) == answer.status_code
        if sketch:
            assert sketch.to_bytes() == answer.content
    assert ["u"] == wide.model("a")["tags"]


def test_a_bad_sketch_fails_its_line_alone(wide: Space) -> None:
    """Each error says what is wrong; the lines beside it are stored."""
    support = base64.b64encode(BASE.to_bytes()).decode()
    results = batch(
        wide,
        line("good", BASE, BASE.sketch()),
        line("size", BASE, BASE.sketch(size=4096)),
        line("k", BASE, Support.from_indices(range(9), M).sketch()),
        line("cut", BASE, BASE.sketch().to_bytes()[:-1]),
        line("text", BASE) | {"sketch": "no base64!"},
        {
            "model": "support",
            "support": support,
            "sketch": line("x", BASE, BASE.sketch())["sketch"],
        },
        line("plain", BASE),
    )
    codes = [result.get("error", {}).get("code") for result in results]
    assert [
        None, "space_mismatch", "invalid_signature", "invalid_signature", "invalid_signature",
        "invalid_parameter", None,
    ] == codes  # fmt: skip
    assert (2, 2) == (wide.show()["models"], wide.show()["version"])


def test_the_SDK_sends_and_reads_sketches(client: modelkin.Client, wide: Space) -> None:
    """``put_sketch``, ``get_sketch`` and ``put_many`` with a sketch beside a signature."""
    client.put_signature(wide.name, "a", BASE.signature())
    info = client.sketches.put(wide.name, "a", BASE.sketch())
    assert ("signature", wide.etag("a")) == (info.kind, info.etag)
    assert BASE.sketch() == client.sketches.get(wide.name, "a")
    items = [BulkItem(n, s.signature(), sketch=s.sketch()) for n, s in KIN.items()]
    wrong = BulkItem("wrong", BASE, sketch=BASE.sketch())
    summary = client.put_many(wide.name, [*items, wrong])
    assert (3, 1, "invalid_parameter") == (
        summary.created,
        summary.failed,
        summary.failures[0].code,
    )
    near = client.neighbors(wide.name, "a")
    assert ["kin9", "kin5", "kin2"] == [n.model for n in near]
    assert {"sketch"} == {n.estimate for n in near}
    with pytest.raises(modelkin.ApiError, match=r"support\.sketch"):
        client.sketches.put(wide.name, "a", BASE.sketch(seed=9))
    with pytest.raises(modelkin.InvalidInput, match=r"must be a modelkin\.Sketch"):
        client.sketches.put(wide.name, "a", BASE)  # type: ignore[arg-type]
