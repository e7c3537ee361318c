"""JSON of strangers: any document is read as its maker meant it, or refused."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelkin.core.foreign_json import (
    count_members,
    decode_json,
    with_constants_as_texts,
    without_half_pairs,
)

TEXTS = st.text(
    st.sampled_from("a\\\"':{}[],\ud800\udbff\udc00\udfff\0\né\U0001f600uD8"), max_size=12
)
DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=12,
)


def members_of(document: Any) -> int:
    """How many members the objects of a document have."""
    if isinstance(document, dict):
        return len(document) + sum(map(members_of, document.values()))
    return sum(map(members_of, document)) if isinstance(document, list) else 0


def is_text(document: Any) -> bool:
    """Whether no text of a document has half a surrogate pair."""
    written = json.dumps(document, ensure_ascii=False)
    return re.search("[\ud800-\udfff]", written) is None


@given(DOCUMENTS)
def test_what_is_text_is_read_as_it_is(document: Any) -> None:
    """A document comes back as it was, unless a text of it is none: then it is refused."""
    document = json.loads(json.dumps(document))  # a pair of two halves is a character
    written = json.dumps(document).encode()
    if is_text(document):
        assert document == decode_json(written)
        assert written == without_half_pairs(written)
    else:
        with pytest.raises(ValueError, match="half a surrogate pair"):
            decode_json(written)


@given(TEXTS)
def test_halves_are_replaced_and_no_more(text: str) -> None:
    """Each half becomes U+FFFD, and every other character stays."""
    text = json.loads(json.dumps(text))
    wanted = re.sub("[\ud800-\udfff]", "\ufffd", text)
    assert wanted == decode_json(without_half_pairs(json.dumps(text).encode()))


@given(st.dictionaries(TEXTS | st.just('NaN"Infinity'), DOCUMENTS | st.floats()))
def test_constants_become_texts(document: Any) -> None:
    """NaN and infinities become texts of their names, and everything else stays."""
    written = json.dumps(document)
    wanted = json.loads(written, parse_constant=str)
    assert wanted == json.loads(with_constants_as_texts(written.encode()))


@given(DOCUMENTS)
def test_members_are_counted(document: Any) -> None:
    """Colons, braces, quotes and backslashes within texts do not count."""
    assert members_of(document) == count_members(json.dumps(document).encode())


def test_repeated_members_are_counted() -> None:
    """Each time that a name is written counts."""
    assert 3 == count_members(b'{"a": {"b:": 1}, "a": 2}')
