"""Values of strangers in messages."""

from __future__ import annotations

from typing import Any

import pytest

from modelkin.core.quoting import quote

DEEP: list[Any] = []
for _ in range(100_000):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("head.weight", "'head.weight'"),
        ("größe\n", r"'gr\xf6\xdfe\n'"),
        ("\ud800", r"'\ud800'"),
        (True, "True"),
        (None, "None"),
        (-(10**40) + 1, "-" + "9" * 40),
        (10**40, "an integer of over 40 digits"),
        (-(10**5000), "an integer of over 40 digits"),
        ([4, 2], "[4, 2]"),
        ([10**5000], "a list"),
        ({"rank": 10**5000}, "a dict"),
        (DEEP, "a list"),
    ],
    ids=lambda value: None if isinstance(value, str) else type(value).__name__,
)
def test_a_value_is_quoted_in_ascii(value: Any, expected: str) -> None:
    """Escaped where it does not print, and described where Python cannot write it."""
    assert expected == quote(value)


@pytest.mark.parametrize(
    "value",
    [
        "x" * 10**6,
        "\ud800" * 10**6,
        list(range(10**6)),
        dict.fromkeys(range(10**5)),
        ("y",) * 10**6,
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_long_value_is_cut(value: Any) -> None:
    """A message holds the first 77 characters of what ``ascii`` writes, and three dots."""
    assert ascii(value)[:77] + "..." == quote(value)


def test_a_value_of_80_characters_is_whole() -> None:
    """The limit counts the quotation marks, too."""
    assert ["'" + "x" * 78 + "'", "'" + "x" * 76 + "..."] == [quote("x" * 78), quote("x" * 79)]
