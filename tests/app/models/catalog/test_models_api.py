"""The metadata of models: listings, PATCH, DELETE."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import httpx
import numpy as np
import pytest

import modelkin
from modelkin import Support
from tests.support.http_space import JSON, SUPPORT, Space, assert_problem, ok, random_support

pytestmark = pytest.mark.smoke

M = 10_000
SMALL = Support.from_indices([1, 2, 3], M)


@pytest.fixture
def stored(space: Space) -> Space:
    """A space with the one model ``a``."""
    space.put("a", SMALL, tags=["t"])
    return space


def patch(space: Space, body: Any, model: str = "a", **headers: str) -> httpx.Response:
    """PATCH of a model."""
    return space.http.patch(space.path("models", model), json=body, headers=headers)


def listing(space: Space, limit: int, **params: Any) -> list[str]:
    """All names of a listing, in pages of ``limit``."""
    names: list[str] = []
    params["limit"] = limit
    while True:
        page = ok(space.http.get(space.path("models"), params=params))
        names += [item["model"] for item in page["items"]]
        if page["next_cursor"] is None:
            return names
        assert limit == len(page["items"])
        params["cursor"] = page["next_cursor"]


NAMES = ["Z", "a", "a b", "a-b", "a/b", "aé", "b", "z", "É", "é/1", "中文", "𝔘", "10", "9"]


@pytest.mark.parametrize("limit", [1, 3, len(NAMES), len(NAMES) + 1, 1000])
def test_pages_joined_are_all_models_in_code_point_order(space: Space, limit: int) -> None:
    """However long the pages, no model is listed twice, none is lost, and the order is one."""
    space.put_all(dict.fromkeys(NAMES, SMALL))
    assert sorted(NAMES) == listing(space, limit)


def test_a_listing_goes_on_while_models_come_and_go(space: Space) -> None:
    """A cursor is a place in the order: persisting models are listed once, whatever changes."""
    space.put_all({f"m{i}": SMALL for i in range(6)})
    page = ok(space.http.get(space.path("models"), params={"limit": 3}))
    assert ["m0", "m1", "m2"] == [item["model"] for item in page["items"]]
    space.http.delete(space.path("models", "m2"))
    space.put("m00", SMALL)
    space.put("m45", SMALL)
    assert ["m3", "m4", "m45", "m5"] == listing(space, 2, cursor=page["next_cursor"])


@pytest.mark.slow
def test_tags_filter_a_listing(space: Space) -> None:
    """``tag`` repeats, a model must carry every one, and pages are filled with matches."""
    for i in range(12):
        space.put(f"m{i:02d}", SMALL, tags=[f"two{i % 2}", f"three{i % 3}"])
    assert ["m00", "m06"] == listing(space, 1, tag=["two0", "three0"])
    assert ["m01", "m03", "m05", "m07", "m09", "m11"] == listing(space, 2, tag="two1")
    assert [] == listing(space, 5, tag=["two0", "two1"])


def test_an_item_of_a_listing_is_the_model(stored: Space) -> None:
    """A listing shows each model as it shows alone."""
    stored.put_signature("s", SMALL.signature())
    items = ok(stored.http.get(stored.path("models")))["items"]
    assert [stored.model("a"), stored.model("s")] == items


def test_the_SDK_lists_beyond_a_page(client: modelkin.Client, space: Space) -> None:
    """The SDK's iterator fetches page by page until all are there."""
    space.put_all({f"m{i:03d}": SMALL for i in range(105)})
    assert [f"m{i:03d}" for i in range(105)] == [m.model for m in client.models.list(space.name)]


def test_PATCH_replaces_what_it_names(stored: Space) -> None:
    """Each field given is replaced whole; the revision stays, the version moves."""
    body = {
        "tags": ["z", "y", "y"],
        "attributes": {"site": 7, "deep": {"a": [1, None, True, "x"]}},
        "source": "https://example.org/a",
        "base_model": "org/base",
    }
    model = ok(patch(stored, body))
    expected = {**body, "tags": ["y", "z"], "revision": 1, "version": 2, "digest": SMALL.digest}
    assert expected == {key: model[key] for key in expected}
    assert model == stored.model("a")


FULL = {"tags": ["t"], "attributes": {"a": 1}, "source": "s", "base_model": "b"}


@pytest.mark.parametrize("field", FULL)
def test_an_absent_field_stays(stored: Space, field: str) -> None:
    """PATCH of one field leaves the others."""
    ok(patch(stored, FULL))
    changed = {"tags": ["u"], "attributes": {"b": 2}, "source": "r", "base_model": "c"}[field]
    model = ok(patch(stored, {field: changed}))
    assert {**FULL, field: changed} == {key: model[key] for key in FULL}


@pytest.mark.parametrize(
    ("field", "left"),
    [("source", None), ("base_model", None), ("tags", ["t"]), ("attributes", {"a": 1})],
)
def test_null_clears_what_may_be_nothing(stored: Space, field: str, left: Any) -> None:
    """``null`` clears source and base_model; tags and attributes have an empty value instead."""
    ok(patch(stored, FULL))
    model = ok(patch(stored, {field: None}))
    assert {**FULL, field: left} == {key: model[key] for key in FULL}


def test_tags_and_attributes_are_cleared_by_empty_ones(stored: Space) -> None:
    """An empty list and an empty object are values like any other."""
    ok(patch(stored, FULL))
    model = ok(patch(stored, {"tags": [], "attributes": {}}))
    assert ([], {}) == (model["tags"], model["attributes"])


@pytest.mark.parametrize("body", [{}, {"tags": ["t"]}, {"attributes": {}, "source": None}])
def test_a_PATCH_that_changes_nothing_changes_nothing(stored: Space, body: Any) -> None:
    """Version, ETag and time of change stay if all values are the same."""
    before = stored.model("a"), stored.etag("a"), stored.show()
    assert 200 == patch(stored, body).status_code
    assert before == (stored.model("a"), stored.etag("a"), stored.show())


VALUES = [
    0,
    -(2**63),
    2**64 - 1,
    0.1,
    5e-324,
    1.7976931348623157e308,
    True,
    None,
    "",
    "é\u2028\u0000x",
    "\U0001f600",
    [],
    {},
    [[[[[1]]]]],
    {"": {"nested": ["list", {"a": None}]}},
]


@pytest.mark.parametrize("value", VALUES, ids=range(len(VALUES)))
def test_an_attribute_comes_back_as_it_was(stored: Space, value: Any) -> None:
    """Every JSON value of a finite number survives, exactly and with its type."""
    model = ok(patch(stored, {"attributes": {"value": value}}))
    assert repr(value) == repr(model["attributes"]["value"])
    assert repr(value) == repr(stored.model("a")["attributes"]["value"])


@pytest.mark.parametrize("number", ["1e400", "-1e400", "NaN", "Infinity", str(2**64), "9" * 5000])
def test_a_number_that_cannot_be_answered_is_refused(stored: Space, number: str) -> None:
    """A number that JSON cannot represent is not stored, at any depth."""
    for value in (number, f"[{number}]", f'{{"a":[{number}]}}'):
        body = f'{{"attributes":{{"value":{value}}}}}'.encode()
        url = stored.path("models", "a")
        answer = stored.http.patch(url, content=body, headers={"Content-Type": JSON})
        assert_problem(answer, 422, "invalid_parameter")
    assert {} == stored.model("a")["attributes"]


def test_a_base_model_is_stored_in_its_normal_form(stored: Space) -> None:
    """Names are compared in normal form C, this one too; it need not exist."""
    assert "org/é" == ok(patch(stored, {"base_model": "org/e\u0301"}))["base_model"]


def test_what_is_said_survives_another_support(stored: Space) -> None:
    """A new revision of the content keeps tags, attributes, source and base model."""
    ok(patch(stored, FULL))
    other = random_support(np.random.default_rng(1), M, 100)
    model = ok(stored.put_bytes("a", other.to_bytes(), SUPPORT))
    assert FULL == {key: model[key] for key in FULL}


def test_PATCH_holds_If_Match(stored: Space) -> None:
    """A stale ETag is a 412, the present one succeeds and is replaced by the next."""
    first = stored.etag("a")
    answer = patch(stored, {"source": "x"}, **{"If-Match": first})
    assert 200 == answer.status_code
    assert first != answer.headers["ETag"] == stored.etag("a")
    assert_problem(
        patch(stored, {"source": "y"}, **{"If-Match": first}), 412, "precondition_failed"
    )
    assert "x" == stored.model("a")["source"]


def test_DELETE_holds_If_Match(stored: Space) -> None:
    """A model that has changed since is not deleted."""
    stale = stored.etag("a")
    ok(patch(stored, {"source": "x"}))
    url = stored.path("models", "a")
    answer = stored.http.delete(url, headers={"If-Match": stale})
    assert_problem(answer, 412, "precondition_failed")
    assert 204 == stored.http.delete(url, headers={"If-Match": stored.etag("a")}).status_code


def test_a_deleted_model_is_gone_everywhere(stored: Space) -> None:
    """DELETE takes the support, the signature and the tags along; again it is a 404."""
    answer = stored.http.delete(stored.path("models", "a"))
    assert (204, b"") == (answer.status_code, answer.content)
    for kind in ("models", "supports", "signatures"):
        assert_problem(stored.http.get(stored.path(kind, "a")), 404, "model_not_found")
    assert_problem(stored.http.delete(stored.path("models", "a")), 404, "model_not_found")
    assert [] == listing(stored, 5, tag="t")


def test_a_recreated_model_starts_again(stored: Space) -> None:
    """The same name after a DELETE is revision 1 again, without the old metadata."""
    ok(patch(stored, FULL))
    old = stored.etag("a")
    stored.http.delete(stored.path("models", "a"))
    model = stored.put("a", SMALL)
    assert (1, [], {}, None) == tuple(
        model[key] for key in ("revision", "tags", "attributes", "source")
    )
    assert old != stored.etag("a")


def test_a_recreated_space_refuses_old_ETags(space: Space) -> None:
    """Versions start again with the space, ETags do not: an old ETag gets a 412."""
    created = space.put_bytes("a", SMALL.to_bytes(), SUPPORT)
    assert created.headers["ETag"] == space.etag("a")
    url = f"/v1/spaces/{space.name}"
    assert 204 == space.http.delete(url).status_code
    again = space.http.post("/v1/spaces", json={"name": space.name, "num_parameters": space.m})
    assert 201 == again.status_code
    model = space.put("a", SMALL)
    answer = patch(space, {"source": "x"}, **{"If-Match": created.headers["ETag"]})
    assert_problem(answer, 412, "precondition_failed")
    assert (1, None) == (model["revision"], space.model("a")["source"])


def test_times_are_UTC_and_move_with_changes(stored: Space) -> None:
    """``created_at`` stays, ``updated_at`` grows, both with their zone."""
    before = stored.model("a")
    after = ok(patch(stored, {"source": "x"}))
    created, first, last = (
        datetime.fromisoformat(value)
        for value in (after["created_at"], before["updated_at"], after["updated_at"])
    )
    assert before["created_at"] == after["created_at"]
    assert created <= first < last
    assert timedelta(0) == last.utcoffset()


def test_the_SDK_updates_and_deletes(client: modelkin.Client, stored: Space) -> None:
    """``models.update`` and ``models.delete`` honour the ETag that ``models.get`` returns."""
    model = client.models.get(stored.name, "a")
    updated = client.models.update(
        stored.name, "a", attributes={"n": 1}, source="s", if_match=model.etag
    )
    assert ({"n": 1}, "s", ("t",)) == (dict(updated.attributes), updated.source, updated.tags)
    with pytest.raises(modelkin.ApiError, match="precondition_failed"):
        client.models.delete(stored.name, "a", if_match=model.etag)
    client.models.delete(stored.name, "a", if_match=updated.etag)
    assert [] == list(client.models.list(stored.name))
