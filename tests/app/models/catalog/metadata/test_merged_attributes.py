"""Attributes merged by PATCH, and origins in lines of a batch, on each database."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from modelkin import Support
from tests.app.models.catalog.test_batch_api import A, put, statuses, text
from tests.app.models.catalog.test_models_api import patch
from tests.support.http_space import Space, assert_problem, ok

SMALL = Support.from_indices([1, 2, 3], 10_000)


@pytest.fixture
def stored(space: Space) -> Space:
    """A space with the one model ``a``, which has attributes."""
    space.put("a", SMALL)
    ok(patch(space, {"attributes": {"digit": 7, "site": "north", "deep": {"x": 1}}}))
    return space


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"digit": 8}, {"digit": 8, "site": "north", "deep": {"x": 1}}),
        ({"new": [1]}, {"digit": 7, "site": "north", "deep": {"x": 1}, "new": [1]}),
        ({"site": None, "absent": None}, {"digit": 7, "deep": {"x": 1}}),
        ({"deep": {"y": 2}}, {"digit": 7, "site": "north", "deep": {"y": 2}}),
        ({}, {"digit": 7, "site": "north", "deep": {"x": 1}}),
    ],
)
def test_merging_changes_the_named_attributes(
    stored: Space, changes: dict[str, Any], expected: dict[str, Any]
) -> None:
    """Each value replaces that of its name, null removes it, and the others stay."""
    assert expected == ok(patch(stored, {"merge_attributes": changes}))["attributes"]
    assert expected == stored.model("a")["attributes"]


def test_merging_what_is_there_changes_nothing(stored: Space) -> None:
    """The version of the model stays."""
    before = stored.model("a")
    assert before == ok(patch(stored, {"merge_attributes": {"digit": 7}}))


def test_attributes_are_replaced_before_they_are_merged(stored: Space) -> None:
    """Both in one request: the new attributes, with the changes."""
    both = {"attributes": {"a": 1, "b": 2}, "merge_attributes": {"b": None, "c": 3}}
    assert {"a": 1, "c": 3} == ok(patch(stored, both))["attributes"]


def test_together_they_may_not_be_too_large(stored: Space) -> None:
    """Two halves that fit alone are refused together, and nothing changes."""
    ok(patch(stored, {"merge_attributes": {"one": "x" * 9000}}))
    before = stored.model("a")
    answer = patch(stored, {"merge_attributes": {"two": "x" * 9000}})
    assert_problem(answer, 422, "invalid_parameter")
    assert "16384 bytes at most" in answer.json()["detail"]
    assert before == stored.model("a")


def test_merges_at_once_are_all_kept(stored: Space) -> None:
    """Writers of different attributes do not undo each other."""

    def write(number: int) -> httpx.Response:
        return patch(stored, {"merge_attributes": {f"n{number}": number}})

    with ThreadPoolExecutor(6) as pool:
        for answer in pool.map(write, range(12)):
            ok(answer)
    assert {f"n{n}": n for n in range(12)}.items() <= stored.model("a")["attributes"].items()


def test_lines_of_a_batch_say_origins(space: Space) -> None:
    """``source`` and ``base_model`` are stored with the content, and stay where a line has none."""
    line = {"model": "a", "support": text(A), "source": "hf://org/a", "base_model": "org/base"}
    assert [("a", "created"), ("a", "unchanged")] == statuses(put(space, line, line))
    bare = {"model": "a", "support": text(A)}
    assert [("a", "unchanged"), ("a", "replaced")] == statuses(
        put(space, bare, {**bare, "base_model": "org/other"})
    )
    stored = space.model("a")
    assert ("hf://org/a", "org/other") == (stored["source"], stored["base_model"])


def test_a_line_with_a_wrong_base_is_refused(space: Space) -> None:
    """The others are stored."""
    lines = (
        {"model": "a", "support": text(A), "base_model": "/"},
        {"model": "b", "support": text(A)},
    )
    refused, kept = put(space, *lines)
    assert ("failed", "created") == (refused["status"], kept["status"])
    assert "model name '/'" in refused["error"]["detail"]
