"""Which names of spaces, models and tags are allowed, and what is said of the others."""

from __future__ import annotations

import unicodedata
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelkin._validation import (
    check_model_name,
    check_space_name,
    check_tag,
    check_tags,
    quote_model,
    quote_whole_name,
)
from modelkin.errors import InvalidName


@pytest.mark.parametrize("name", ["a", "0", "digits-cnn", "a.b_c-d", "a" * 100])
def test_space_names_allowed(name: str) -> None:
    """Lower-case letters, digits and inner punctuation make a space name, up to 100 of them."""
    assert name == check_space_name(name)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("", "may not be empty"),
        ("Digits", "'D' (U+0044) at position 0"),
        (".hidden", "'.' (U+002E) at position 0"),
        ("a/b", "'/' (U+002F) at position 1"),
        ("a\n", "'\\n' (U+000A) at position 1"),
        ("ünder", "U+00FC"),
        ("a" * 101, "at most 100 characters, not 101"),
        (7, "must be a string, not int"),
    ],
)
def test_space_names_refused(name: object, said: str) -> None:
    """A wrong space name is refused with the character and its place."""
    with pytest.raises(InvalidName) as caught:
        check_space_name(name)
    assert said in str(caught.value)
    assert "space" == caught.value.field


@pytest.mark.parametrize(
    "name",
    [
        "org/name",
        "a b/c d",
        "v1.0_x-y@z+w:q",
        "模型/७",
        "naïve",
        "\u05e9\u05c1\u05b8\u05dc",
        "a/..b",
        "...",
        "e" * 200,
    ],
)
def test_model_names_allowed(name: str) -> None:
    """Any script's letters, marks and digits, inner spaces and the listed punctuation are names."""
    assert unicodedata.normalize("NFC", name) == check_model_name(name)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("", "may not be empty"),
        ("/a", "segment 1 of model name '/a' is empty"),
        ("a//b", "segment 2 of model name 'a//b' is empty"),
        ("a/", "segment 2 of model name 'a/' is empty"),
        ("a/../b", "segment 2 of model name 'a/../b' is '..'"),
        (".", "segment 1 of model name '.' is '.'"),
        (" a", "begins or ends with a space"),
        ("a/b /c", "segment 2 of model name 'a/b /c' begins or ends with a space"),
        ("a\x00", "'\\x00' (U+0000) at position 1"),
        ("a\x7f", "U+007F"),
        ("a\u200b", "U+200B"),
        ("\ud800", "U+D800"),
        ("what?", "'?' (U+003F) at position 4"),
        ("a#b", "U+0023"),
        ("50%", "U+0025"),
        ("a\\b", "U+005C"),
        ("a\u00a0b", "U+00A0"),
        ("é" * 101, "202 bytes of UTF-8"),
        ("e" * 201, "201 bytes of UTF-8"),
        ("e" * 10**6, "has more"),
        (None, "must be a string, not NoneType"),
    ],
)
def test_model_names_refused(name: object, said: str) -> None:
    """A wrong model name is refused with what is wrong and where, in a short message."""
    with pytest.raises(InvalidName) as caught:
        check_model_name(name)
    assert said in str(caught.value)
    assert len(str(caught.value)) < 300


def test_length_counts_after_normalisation() -> None:
    """A decomposed name of 300 bytes that composes to 200 is allowed."""
    assert check_model_name("e\u0301" * 100) == "é" * 100


def test_every_composition_keeps_a_quarter_of_the_bytes() -> None:
    """Nothing shrinks below a quarter, so refusing long names unread refuses no allowed one."""
    for point in [*range(0xD800), *range(0xE000, 0x30000)]:
        composed = unicodedata.normalize("NFC", chr(point))
        whole = unicodedata.normalize("NFD", composed)
        assert len(whole) <= 4 * len(composed.encode())


@given(st.text(max_size=80))
def test_checked_names_stay(text: str) -> None:
    """A name is either refused, or its returned form is allowed and returned unchanged."""
    try:
        name = check_model_name(text)
    except InvalidName:
        return
    assert name == check_model_name(name)


@given(st.text(alphabet="aB7 ._-@+:/é模\u0301", min_size=1, max_size=60))
def test_quoting_is_undone_by_unquoting(text: str) -> None:
    """A quoted name holds only safe characters and unquotes to the name, slash for slash."""
    try:
        quoted = quote_model(text)
    except InvalidName:
        return
    assert check_model_name(text) == unquote(quoted)
    assert not set(" @+:?#") & set(quoted)
    assert text.count("/") == quoted.count("/")


def test_a_name_that_ends_as_a_question_keeps_its_last_slash() -> None:
    """No other slash is written in another way, and no other name."""
    assert "org/lineage%2Flineage" == quote_whole_name("org/lineage/lineage")
    assert ["anatomy", "a/anatomy-2", "anatomy/a"] == [
        quote_whole_name(name) for name in ("anatomy", "a/anatomy-2", "anatomy/a")
    ]


@pytest.mark.parametrize("tag", ["round-3", "a/b", "x" * 100, "größe 3"])
def test_tags_allowed(tag: str) -> None:
    """Tags use the alphabet of model names, up to 100 bytes."""
    assert tag == check_tag(tag)


@pytest.mark.parametrize("tag", ["", " a", "a ", "x" * 101, "a,b", "a\n", 3])
def test_tags_refused(tag: object) -> None:
    """Empty, padded, long and foreign tags are refused."""
    with pytest.raises(InvalidName):
        check_tag(tag)


def test_tags_are_distinct_and_sorted() -> None:
    """Order and repetition of tags mean nothing, whichever way a letter was composed."""
    assert ("a", "b", "é") == check_tags(["b", "é", "a", "b", "e\u0301"])


@pytest.mark.parametrize(
    ("tags", "field"),
    [("round-3", "tags"), (["ok", "not,ok"], "tags[1]"), (map(str, range(51)), "tags")],
)
def test_wrong_tags_are_named(tags: object, field: str) -> None:
    """One string for many, a wrong tag and a 51st tag are refused, each by its field."""
    with pytest.raises(InvalidName) as caught:
        check_tags(tags)  # type: ignore[arg-type]
    assert field == caught.value.field
