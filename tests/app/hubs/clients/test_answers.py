"""Answers of hubs, read part by part: what is no text is none, and memory is bounded."""

from __future__ import annotations

import json
import tracemalloc
from datetime import UTC, datetime
from typing import Any

import pytest

from app.hubs.clients.answers import (
    items_of,
    moment_of,
    name_of,
    part_of,
    read_answer,
    shown,
    text_of,
)
from app.infra.errors import HubProtocolError
from modelkin.core.foreign_json import NULL, Raw


def read(document: Any) -> Raw:
    """A document as a part of an answer."""
    return read_answer(json.dumps(document).encode(), Raw, "it answers", "/")


@pytest.mark.parametrize(
    "text", ["\ud800", "a\udfff", "a\0", "\x1b[2J", "\x85", "a\u202eb", "\u200b", "b\ufffd", ""]
)
def test_a_text_that_is_none(text: str) -> None:
    """It describes nothing and names nothing; the error about a name shows it with escapes."""
    assert text_of(read(text)) is None
    with pytest.raises(HubProtocolError) as caught:
        name_of(read(text), "the id of a model")
    assert str(caught.value).isascii()
    assert "the id of a model" in str(caught.value)


@pytest.mark.parametrize("text", ["org/a", "größe", "模型", "\U0001f600", "\\ud800", "a\\\\u0000"])
def test_a_text_that_is_one(text: str) -> None:
    """Letters of any script, pairs of surrogates and backslashes stay, also beside a half."""
    whole = read([text, "\ud800"])
    assert (text, text) == (text_of(next(items_of(whole))), name_of(read(text), "a name"))


@pytest.mark.parametrize(
    ("said", "moment"),
    [
        ("2025-03-04T05:06:07.000Z", datetime(2025, 3, 4, 5, 6, 7, tzinfo=UTC)),
        ("2025-03-04T05:06:07+02:00", datetime(2025, 3, 4, 3, 6, 7, tzinfo=UTC)),
        (1741064767000, datetime(2025, 3, 4, 5, 6, 7, tzinfo=UTC)),
        ("1741064767000", datetime(2025, 3, 4, 5, 6, 7, tzinfo=UTC)),
        ("2025-03-04T05:06:07", None),
        ("yesterday", None),
        (10**30, None),
        (True, None),
        (None, None),
    ],
)
def test_a_moment_has_an_offset_or_is_a_number(said: Any, moment: datetime | None) -> None:
    """Milliseconds since 1970, as registries write them; anything else is none."""
    assert moment == moment_of(read(said))


def test_what_is_of_another_type_is_absent() -> None:
    """Neither a number nor a list is a text, and a missing name is none."""
    assert [None] * 4 == [text_of(read(value)) for value in json.loads("[7, [], {}, null]")]
    assert ([], None) == (list(items_of(read({"a": 1}))), part_of(read("a"), int))
    assert name_of(NULL, "a name") is None


def test_a_text_is_cut() -> None:
    """A text of a megabyte is none but for its beginning."""
    assert "x" * 2000 == text_of(read("x" * 1_000_000))
    assert "xx" == shown("xxx", 2)


@pytest.mark.parametrize(
    "body",
    [b"[" * 100_000, b"NaN", b"1e400", b"[1e400]", b"\xff", b'["\xff"]', b"'a'", b'{"a":1', b""],
)
def test_what_is_no_json(body: bytes) -> None:
    """It is refused, with the path that was asked for."""
    with pytest.raises(HubProtocolError, match=r"it answers .* to /here"):
        read_answer(body, list[str], "it answers", "/here")


def test_an_answer_of_endless_values() -> None:
    """More than a million are refused before any is made."""
    body = b"[%b0]" % (b'{"a":0},' * 1_000_001)
    tracemalloc.start()
    try:
        with pytest.raises(HubProtocolError, match="more than 1,000,000 values"):
            read_answer(body, list[Raw], "it answers", "/")
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_unknown_fields_take_no_memory() -> None:
    """Of a page of many fields only those that are asked for become objects."""
    body = json.dumps([{"id": "org/a", "more": [{"a": n} for n in range(50_000)]}]).encode()
    tracemalloc.start()
    try:
        [item] = read_answer(body, list[Raw], "it answers", "/")
        assert tracemalloc.get_traced_memory()[1] < 1 << 16
    finally:
        tracemalloc.stop()
    assert b"{" == bytes(item)[:1]
