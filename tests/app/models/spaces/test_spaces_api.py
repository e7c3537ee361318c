"""Spaces over HTTP: making, listing, showing, deleting."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import httpx
import pytest

import modelkin
from modelkin import Support
from tests.support.http_space import SUPPORT, Space, assert_problem, ok

LAYOUT = [
    {"name": "w", "shape": [30, 20]},
    {"name": "b", "shape": [30]},
    {"name": "scale", "shape": []},
    {"name": "nothing", "shape": [0, 5]},
]
TOTAL = 30 * 20 + 30 + 1
SUPPORT_OF_TOTAL = Support.from_indices([0, 5, 600, 630], TOTAL)


def make(http: httpx.Client, name: str, **body: Any) -> httpx.Response:
    """POST a space."""
    return http.post("/v1/spaces", json={"name": name, **body})


def test_a_new_space_is_a_201_that_describes_it(http: httpx.Client) -> None:
    """The first POST answers 201, the whole space, and its location."""
    answer = make(http, "new.space_1-a", num_parameters=1000)
    expected = {
        "name": "new.space_1-a",
        "num_parameters": 1000,
        "layout": None,
        "signature": {"scheme": "affine32", "num_perm": 256, "seed": 1},
        "models": 0,
        "supports": 0,
        "signatures": 0,
        "version": 0,
    }
    assert 201 == answer.status_code
    assert expected == {key: answer.json()[key] for key in expected}
    assert answer.json() == http.get(answer.headers["Location"]).json()


def test_the_same_body_again_is_a_200(http: httpx.Client) -> None:
    """An equal request finds the space, with defaults given or not."""
    first = make(http, "again", num_parameters=1000)
    spelled = {"scheme": "affine32", "num_perm": 256, "seed": 1}
    again = make(http, "again", num_parameters=1000, signature=spelled)
    assert (200, first.json()) == (again.status_code, again.json())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"num_parameters": 1001}, "num_parameters is 1000, not 1001"),
        ({"signature": {"num_perm": 128}}, "affine32 of num_perm 256 and seed 1, not affine32"),
        ({"signature": {"seed": 2}}, "not affine32 of num_perm 256 and seed 2"),
        ({"signature": {"scheme": "affine64"}}, "not affine64 of"),
        ({"layout": [{"name": "w", "shape": [1000]}]}, "it has no layout"),
        ({"support_size": {"policy": "agreed"}}, "its support_size is free, not agreed"),
        ({"support_size": {"policy": "fixed", "k": 9}}, "free, not fixed at K = 9"),
        ({"importance": {"kind": "weight"}}, "its importance is unstated, not weight"),
    ],
)
def test_another_body_is_a_409_that_says_what_differs(
    http: httpx.Client, change: dict[str, Any], said: str
) -> None:
    """A name that is taken by a different space is a conflict, and the space stays."""
    make(http, "taken", num_parameters=1000)
    before = ok(http.get("/v1/spaces/taken"))
    answer = make(http, "taken", **{"num_parameters": 1000, **change})
    assert said in assert_problem(answer, 409, "space_exists")
    assert before == ok(http.get("/v1/spaces/taken"))


def test_all_differences_are_named_at_once(http: httpx.Client) -> None:
    """One refusal says everything, in words."""
    make(http, "one-of-two", num_parameters=1000, importance={"kind": "fisher"})
    other = {
        "num_parameters": 900,
        "importance": {"kind": "weight"},
        "banding": {"bands": 32, "rows": 8},
        "support_size": {"policy": "agreed"},
    }
    said = assert_problem(make(http, "one-of-two", **other), 409, "space_exists")
    assert said.endswith(
        "it differs: num_parameters is 1000, not 900; its importance is fisher, not weight; "
        "it has banding 64 x 4, not banding 32 x 8; its support_size is free, not agreed"
    )


def test_a_layout_counts_the_parameters(http: httpx.Client) -> None:
    """M is optional with a layout; a scalar counts one, an empty tensor zero."""
    space = ok(make(http, "of-a-layout", layout=LAYOUT))
    assert (TOTAL, LAYOUT) == (space["num_parameters"], space["layout"])
    assert 200 == make(http, "of-a-layout", layout=LAYOUT, num_parameters=TOTAL).status_code


def test_the_order_of_a_layout_matters(http: httpx.Client) -> None:
    """The same tensors in another order index other parameters: another space."""
    make(http, "ordered", layout=LAYOUT)
    answer = make(http, "ordered", layout=LAYOUT[::-1])
    assert "layout" in assert_problem(answer, 409, "space_exists")


@pytest.mark.parametrize(
    ("m", "scheme"), [(2**32, "affine32"), (2**32 + 1, "affine64"), (2**63 - 1, "affine64")]
)
def test_the_scheme_follows_M(http: httpx.Client, m: int, scheme: str) -> None:
    """Beyond 2^32 parameters signatures are affine64 unless said otherwise."""
    space = Space(http, m).show()
    assert (m, scheme) == (space["num_parameters"], space["signature"]["scheme"])


@pytest.mark.slow
def test_spaces_are_listed_by_name_page_by_page(http: httpx.Client) -> None:
    """Pages of two, joined, are all spaces in order, none twice and none lost."""
    made = {f"listed-{i}" for i in range(5)}
    for name in made:
        make(http, name, num_parameters=9)
    names: list[str] = []
    params: dict[str, Any] = {"limit": 2}
    while True:
        page = ok(http.get("/v1/spaces", params=params))
        assert len(page["items"]) <= 2
        names += [space["name"] for space in page["items"]]
        if page["next_cursor"] is None:
            break
        params["cursor"] = page["next_cursor"]
    assert sorted(set(names)) == names
    assert made <= set(names)


def test_counts_follow_the_models(http: httpx.Client) -> None:
    """Supports and signatures are counted apart, and each change moves the version by one."""
    space = Space(http, TOTAL)
    space.put("a", SUPPORT_OF_TOTAL)
    space.put("b", SUPPORT_OF_TOTAL)
    space.put_signature("c", SUPPORT_OF_TOTAL.signature())
    http.delete(space.path("models", "a"))
    shown = space.show()
    counts = {key: shown[key] for key in ("models", "supports", "signatures", "version")}
    assert {"models": 2, "supports": 1, "signatures": 1, "version": 4} == counts


def test_a_deleted_space_is_gone_and_recreated_empty(http: httpx.Client) -> None:
    """DELETE takes everything in the space along; the same name may then be another space."""
    make(http, "short-lived", num_parameters=TOTAL)
    base, headers = "/v1/spaces/short-lived", {"Content-Type": SUPPORT}
    body = SUPPORT_OF_TOTAL.to_bytes()
    for name in "ab":
        assert 201 == http.put(f"{base}/supports/{name}", content=body, headers=headers).status_code
    assert ["b"] == [n["model"] for n in ok(http.get(f"{base}/neighbors?model=a"))["items"]]
    answer = http.delete(base)
    assert (204, b"") == (answer.status_code, answer.content)
    assert_problem(http.delete(base), 404, "space_not_found")
    assert 201 == make(http, "short-lived", num_parameters=TOTAL).status_code
    assert [] == ok(http.get(f"{base}/models"))["items"]
    found = http.post(f"{base}/neighbors", content=body, headers=headers)
    assert [] == ok(found)["items"]
    assert (0, 0) == tuple(ok(http.get(base))[key] for key in ("models", "version"))


def test_a_space_of_16_tensors_of_the_largest_size(http: httpx.Client) -> None:
    """A layout may hold up to 2^63 - 1 parameters, and not one more."""
    layout = [{"name": "a", "shape": [2**62]}, {"name": "b", "shape": [2**62 - 1]}]
    assert 2**63 - 1 == ok(make(http, "largest", layout=layout))["num_parameters"]
    layout[1] = {"name": "b", "shape": [2**62]}
    assert_problem(make(http, "larger", layout=layout), 422, "invalid_layout", "layout")


def test_the_SDK_makes_and_reads_spaces(client: modelkin.Client) -> None:
    """``ensure_space`` twice is one space; it is shown, listed and deleted by the SDK."""
    layout = modelkin.Layout.of([("w", (30, 20)), ("b", (30,))])
    made = client.ensure_space("of-the-sdk", layout=layout)
    assert (
        made == client.ensure_space("of-the-sdk", layout=layout) == client.spaces.get("of-the-sdk")
    )
    assert (630, layout) == (made.num_parameters, made.layout)
    listed = {space.name: space for space in client.spaces.list()}["of-the-sdk"]
    assert listed == replace(made, layout=None)
    assert layout.digest == listed.layout_digest
    client.spaces.delete("of-the-sdk")
    with pytest.raises(modelkin.ApiError, match="space_not_found"):
        client.spaces.get("of-the-sdk")
