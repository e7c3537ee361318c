"""Filters: which models of a hub are followed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.hubs.filters import Filters
from modelkin.errors import InvalidParameter


@pytest.mark.parametrize(
    ("filters", "name", "tags", "follows"),
    [
        ({}, "any", None, True),
        ({"repos": ["org/*"]}, "org/a", None, True),
        ({"repos": ["org/*"]}, "organic/a", None, False),
        ({"repos": ["org/*", "b"]}, "b", None, True),
        ({"repos": ["org/llama-?b"]}, "org/llama-8b", None, True),
        ({"repos": ["org/llama-?b"]}, "org/llama-70b", None, False),
        ({"repos": ["org/[ab]"]}, "org/a", None, False),
        ({"owners": ["org", "me"]}, "me/a", None, True),
        ({"owners": ["org"]}, "Org/a", None, False),
        ({"tags": ["x", "y"]}, "a", ["y", "x", "z"], True),
        ({"tags": ["x", "y"]}, "a", ["x"], False),
        ({"tags": ["x"]}, "a", None, True),
        ({"owners": ["org"], "tags": ["x"]}, "org/a", [], False),
        ({"owners": [], "repos": None}, "a", [], True),
    ],
)
def test_what_is_followed(
    filters: dict[str, Any], name: str, tags: list[str] | None, follows: bool
) -> None:
    """One of the repos, one of the owners, and every tag; what is not known excludes nothing."""
    assert follows is (Filters.of(filters).reason_against(name, tags) is None)


@given(st.text("ab/[*?", max_size=8), st.text("ab/[", max_size=8))
def test_stars_and_question_marks_stand_for_text(pattern: str, name: str) -> None:
    """A star fits any text, a question mark any character, all else itself."""

    def fits(pattern: str, name: str) -> bool:
        if not pattern:
            return not name
        if pattern[0] == "*":
            return any(fits(pattern[1:], name[begin:]) for begin in range(len(name) + 1))
        return bool(name) and pattern[0] in {"?", name[0]} and fits(pattern[1:], name[1:])

    if pattern:
        followed = Filters.of({"repos": [pattern]}).reason_against(name) is None
        assert fits(pattern, name) is followed


def test_a_pattern_takes_no_long_time() -> None:
    """Many stars against a name that almost fits end at once."""
    filters = Filters.of({"repos": ["*a" * 12 + "b"]})
    assert filters.reason_against("a" * 60) is not None


@pytest.mark.parametrize(
    ("filters", "field"),
    [
        ({"models": ["a"]}, "filters"),
        ({"repos": "org/*"}, "filters.repos"),
        ({"repos": [7]}, "filters.repos"),
        ({"tags": [""]}, "filters.tags"),
        ({"tags": ["a\0b"]}, "filters.tags"),
        ({"owners": ["x"] * 101}, "filters.owners"),
        ({"owners": ["x" * 201]}, "filters.owners"),
    ],
)
def test_mistakes_are_named(filters: dict[str, Any], field: str) -> None:
    """What is no filter is refused, and by its field."""
    with pytest.raises(InvalidParameter) as error:
        Filters.of(filters)
    assert field == error.value.field


@pytest.mark.parametrize(
    ("filters", "owners"),
    [
        ({}, None),
        ({"tags": ["x"]}, None),
        ({"owners": ["b", "a", "b"]}, ("a", "b")),
        ({"repos": ["b/*", "a/x"]}, ("a", "b")),
        ({"repos": ["b/*", "*/x"]}, None),
        ({"repos": ["b/*", "gpt2"]}, None),
    ],
)
def test_owners_follow_from_names(filters: dict[str, Any], owners: tuple[str, ...] | None) -> None:
    """Whose models there are to be listed is said by owners, or by repos that all name theirs."""
    assert owners == Filters.of(filters).named_owners
