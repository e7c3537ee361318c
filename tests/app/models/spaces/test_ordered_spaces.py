"""Ordered spaces: their setting, what they take, and what they refuse."""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import httpx
import numpy as np
import pytest

import modelkin
from app.infra.http.requests.bodies import BodyLimits
from app.models.catalog.endpoints.payloads import Payload
from modelkin import wire
from tests.support.http_space import (
    JSON,
    RAW,
    ROARING,
    SIGNATURE,
    SUPPORT,
    Space,
    assert_problem,
    ok,
)
from tests.support.orders.family import importances, ordered_supports

M, K = 4000, 200
SUPPORTS = ordered_supports(importances(3, M, 4), K)
ORDERED = SUPPORTS["m000"]
PLAIN = ORDERED.unordered()
NAMES = (f"ordered-{number}" for number in itertools.count())


@pytest.fixture(scope="module")
def ordered(http: httpx.Client) -> Space:
    """An ordered space that holds one model."""
    space = Space(http, M, ordered=True)
    space.put("kept", ORDERED)
    return space


@pytest.fixture(scope="module")
def plain(http: httpx.Client) -> Space:
    """A plain space."""
    return Space(http, M)


def test_spaces_say_whether_they_are_ordered(
    http: httpx.Client, ordered: Space, plain: Space
) -> None:
    """Shown, listed, and the default is no."""
    assert ordered.show()["ordered"]
    assert not plain.show()["ordered"]
    listed = {each["name"]: each for each in ok(http.get("/v1/spaces?limit=1000"))["items"]}
    assert (True, False) == (listed[ordered.name]["ordered"], listed[plain.name]["ordered"])


def test_the_setting_is_for_good(http: httpx.Client, ordered: Space, plain: Space) -> None:
    """The same body again is a 200, and another value of it a 409 that names it."""
    body = {"name": ordered.name, "num_parameters": M}
    assert 200 == http.post("/v1/spaces", json={**body, "ordered": True}).status_code
    answer = http.post("/v1/spaces", json=body)
    assert "ordered is true" in assert_problem(answer, 409, "space_exists")
    answer = http.post("/v1/spaces", json={**body, "name": plain.name, "ordered": True})
    assert "ordered is false" in assert_problem(answer, 409, "space_exists")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"importance": {"kind": "weight"}}, "importances of gradients"),
        ({"importance": {"kind": "delta"}}, "importances of gradients"),
        ({"kind": "subspaces"}, "of supports"),
        ({"ordered": "perhaps"}, "ordered"),
    ],
)
def test_bodies_that_cannot_be_an_ordered_space(
    http: httpx.Client, body: dict[str, Any], said: str
) -> None:
    """Weights, data subspaces, and what is neither true nor false."""
    asked = {"name": next(NAMES), "num_parameters": M, "ordered": True, **body}
    answer = http.post("/v1/spaces", json=asked)
    assert 422 == answer.status_code
    assert said in answer.text


def test_an_importance_of_weights_is_refused_where_none_is_stated(ordered: Space) -> None:
    """The space states no kind, and a support of weights has no use for ranks."""
    answer = ordered.put_bytes("w", ORDERED.to_bytes(), SUPPORT, importance="weight")
    assert "importances of gradients" in assert_problem(answer, 409, "space_mismatch")
    assert (
        201 == ordered.put_bytes("g", ORDERED.to_bytes(), SUPPORT, importance="fisher").status_code
    )


@pytest.mark.parametrize("media_type", [SUPPORT, ROARING, RAW, JSON])
def test_plain_supports_are_refused(ordered: Space, media_type: str) -> None:
    """In every format, with what to do; nothing is stored."""
    answer = ordered.put_bytes("new", wire.dump_support(PLAIN, media_type), media_type)
    assert "ordered=True" in assert_problem(answer, 409, "space_mismatch")
    assert 404 == ordered.http.get(ordered.path("models", "new")).status_code


@pytest.mark.parametrize("media_type", [SUPPORT, JSON])
def test_ordered_supports_come_back_as_they_went_in(ordered: Space, media_type: str) -> None:
    """Their octaves are part of the digest and of what is read."""
    body = wire.dump_support(SUPPORTS["m001"], media_type)
    stored = ok(ordered.put_bytes("back", body, media_type))
    assert SUPPORTS["m001"].digest == stored["digest"]
    for accept in (SUPPORT, JSON):
        answer = ordered.http.get(ordered.path("supports", "back"), headers={"Accept": accept})
        assert SUPPORTS["m001"] == wire.load_support(answer.content, accept, M)


def test_formats_without_octaves_are_not_answered(ordered: Space) -> None:
    """Roaring and raw indices would lose them: a 406 that names the others."""
    for accept in (ROARING, RAW):
        answer = ordered.http.get(ordered.path("supports", "kept"), headers={"Accept": accept})
        assert SUPPORT in assert_problem(answer, 406, "not_acceptable")


def test_other_ranks_are_another_revision(ordered: Space) -> None:
    """Of the same indices: the octaves are content."""
    swapped = np.array(ORDERED.octaves)
    first, second = (int((swapped == octave).argmax()) for octave in (0, 1))
    swapped[[first, second]] = swapped[[second, first]]
    other = modelkin.Support(ORDERED.indices, M, octaves=swapped)
    assert 1 == ordered.put("ranks", ORDERED)["revision"]
    assert 2 == ordered.put("ranks", other)["revision"]
    assert 2 == ordered.put("ranks", other)["revision"]
    past = ordered.http.get(ordered.path("supports", "ranks"), params={"revision": 1})
    assert ORDERED == modelkin.Support.from_bytes(past.content)


def test_signatures_and_deltas_are_refused(ordered: Space) -> None:
    """They have no octaves: a 409 that says what to send."""
    headers = {"Content-Type": SIGNATURE}
    url = ordered.path("signatures", "s")
    answer = ordered.http.put(url, content=PLAIN.signature().to_bytes(), headers=headers)
    assert "a signature has no octaves" in assert_problem(answer, 409, "space_mismatch")
    change = json.dumps({"added": [], "removed": [int(PLAIN.indices[0])]})
    answer = ordered.http.patch(
        ordered.path("supports", "kept"),
        content=change,
        headers={"Content-Type": JSON, "If-Match": ordered.etag("kept")},
    )
    assert "PUT the support whole" in assert_problem(answer, 409, "space_mismatch")


def test_a_batch_refuses_the_lines_that_do_not_fit(ordered: Space) -> None:
    """Plain supports and signatures; the others are stored."""
    lines = [
        {"model": "many/a", "support": base64.b64encode(SUPPORTS["m002"].to_bytes()).decode()},
        {"model": "many/b", "support": base64.b64encode(PLAIN.to_bytes()).decode()},
        {"model": "many/c", "signature": wire.signature_to_json(PLAIN.signature())},
    ]
    answer = ordered.http.post(
        ordered.path("batch"),
        content="\n".join(map(json.dumps, lines)),
        headers={"Content-Type": "application/jsonl"},
    )
    results = [json.loads(line) for line in answer.text.splitlines()]
    assert ["created", "failed", "failed"] == [each["status"] for each in results]
    assert {"space_mismatch"} == {each["error"]["code"] for each in results[1:]}


def test_a_plain_space_refuses_ordered_supports(plain: Space) -> None:
    """Its answers would ignore the ranks: a 409 that says how to send it."""
    for body, media_type in (
        (ORDERED.to_bytes(), SUPPORT),
        (wire.dump_support(ORDERED, JSON), JSON),
    ):
        answer = plain.put_bytes("a", body, media_type)
        assert "support.unordered()" in assert_problem(answer, 409, "space_mismatch")


class Budget:
    """Counts the bytes of memory that a request takes."""

    def __init__(self) -> None:
        self.taken = 0

    def take(self, count: int) -> None:
        self.taken += count


def test_a_request_takes_memory_for_its_octaves() -> None:
    """A byte an index for each copy, before anything is decoded."""

    @contextmanager
    def at_once(_: int) -> Iterator[Any]:
        yield lambda function, *arguments: function(*arguments)

    taken = []
    for support in (PLAIN, ORDERED):
        budget, body = Budget(), bytearray(support.to_bytes())
        limits = BodyLimits(1 << 20, 1 << 20, 1.0)
        payload = Payload(body, SUPPORT, limits, cast(Any, budget), cast(Any, at_once))
        assert support == payload.support(M)
        taken.append(budget.taken)
    assert [3 * 4 * K, 3 * 5 * K] == taken
