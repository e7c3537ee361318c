"""Supports as answers: how many indices JSON takes, and that a large one is sent whole."""

from __future__ import annotations

import tracemalloc

import httpx
import numpy as np
import pytest

from modelkin import Support, wire
from tests.support.http_space import JSON, RAW, ROARING, SUPPORT, Space, assert_problem

MILLION = 1_000_000


@pytest.fixture(scope="module")
def large(http: httpx.Client) -> Space:
    """A space with supports of a million indices, and of one more, in two revisions."""
    space = Space(http, 4 * MILLION)
    for name, k in (("most", MILLION), ("more", MILLION + 1)):
        support = Support.from_indices(np.arange(0, 3 * k, 3), space.m)
        space.put(name, support)
    return space


def read(space: Space, model: str, accept: str, **params: int) -> httpx.Response:
    """GET of a support."""
    path = space.path("supports", model)
    return space.http.get(path, headers={"Accept": accept}, params=params)


def test_a_million_indices_are_answered_as_JSON(large: Space) -> None:
    """They come whole, although they are sent piece by piece."""
    answer = read(large, "most", JSON)
    assert (200, JSON) == (answer.status_code, answer.headers["content-type"])
    assert list(range(0, 3 * MILLION, 3)) == answer.json()["indices"]


@pytest.mark.parametrize("params", [{}, {"revision": 1}])
def test_more_indices_as_JSON_are_a_406_that_names_other_types(
    large: Space, params: dict[str, int]
) -> None:
    """The problem says how many there are, how many JSON takes, and what to ask for."""
    detail = assert_problem(read(large, "more", JSON, **params), 406, "not_acceptable")
    for part in ("1000001 indices", "1000000 at most", SUPPORT, ROARING, RAW):
        assert part in detail


@pytest.mark.parametrize("accept", [SUPPORT, ROARING, RAW, "application/json, */*;q=0.1"])
def test_more_indices_come_in_the_binary_types(large: Space, accept: str) -> None:
    """Also where JSON is only preferred, and with the length that was announced."""
    answer = read(large, "more", accept)
    support = wire.load_support(answer.content, answer.headers["content-type"], large.m)
    assert (MILLION + 1, 3 * MILLION) == (support.k, int(support.indices[-1]))
    assert len(answer.content) == int(answer.headers["content-length"])
    assert answer.headers["etag"] == large.etag("more")


@pytest.mark.slow
def test_a_support_is_written_as_JSON_in_little_memory() -> None:
    """All its indices as integers would take ten times what it has itself."""
    support = Support.from_indices(np.arange(MILLION, dtype=np.uint32), 2 * MILLION)
    tracemalloc.start()
    try:
        written = sum(len(piece) for piece in wire.support_json_pieces(support))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert written > 6 * MILLION
    assert peak < 8 * MILLION
