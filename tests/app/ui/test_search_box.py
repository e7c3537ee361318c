"""The language of the search box, and what it suggests, on each database."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.ui.queries import FIELDS, Term, filter_of, misread, terms_of
from modelkin import Support
from tests.support.http_space import Space, ok

SMALL = Support.from_indices([1, 2, 3], 10_000)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("bert", [Term("text", "bert")]),
        ('tag:"round 3" owner:acme', [Term("tag", "round 3"), Term("owner", "acme")]),
        ("digit=7 has:site", [Term("attribute", "digit=7"), Term("has", "site")]),
        ('"a b=c d"', [Term("attribute", "a b=c d")]),
        ('"say ""hi"""', [Term("text", 'say "hi"')]),
        ("hf://acme/x", [Term("text", "hf://acme/x")]),
        ("tag: base:org/base", [Term("base", "org/base")]),
        ('tag:"open', [Term("tag", "open")]),
        ("  ", []),
        ("=7", [Term("text", "=7")]),
    ],
)
def test_a_query_has_terms(query: str, expected: list[Term]) -> None:
    """A word before a colon says where to look, an equals sign makes an attribute."""
    assert expected == terms_of(query)


values = st.text(st.characters(exclude_categories=["C"]), min_size=1, max_size=30)


@given(st.lists(st.tuples(st.sampled_from(FIELDS), values), max_size=5))
def test_written_terms_are_read_again(pairs: list[tuple[str, str]]) -> None:
    """Whatever a value holds: quotes, spaces, colons."""
    terms = [Term(field, value) for field, value in pairs if value.strip()]
    assert terms == terms_of(" ".join(map(str, terms)))


def test_terms_are_a_filter_together() -> None:
    """Owner and name make one prefix, words one text."""
    wanted = filter_of(terms_of("owner:acme name:be tag:t digit=7 has:x base:org/b large model"))
    assert ("acme/be", "large model", ("t",)) == (wanted.prefix, wanted.text, wanted.tags)
    assert (("digit", "7"), ("x", None)) == wanted.attributes
    assert "org/b" == wanted.base_model


@pytest.fixture(scope="module")
def filled(http: httpx.Client) -> Space:
    """Models of two owners; another space of the tenant has tags that no one may see here."""
    space, other = Space(http), Space(http)
    for place, name in enumerate(["acme/a-bert", "acme/b", "orb", "org/c", "org/Bert_2"]):
        space.put(name, SMALL, tags=[f"round-{place}", "shared tag"])
        body = {"attributes": {"digit": place % 2, "site": "north"}, "base_model": f"org/{place}"}
        ok(http.patch(space.path("models", name), json=body))
    other.put("org/elsewhere", SMALL, tags=["round-elsewhere", "round-0"])
    return space


def suggested(space: Space, typed: str) -> list[tuple[str, str]]:
    """Kinds and values of the suggestions for what is typed."""
    answer = space.http.get(f"/spaces/{space.name}/completions", params={"q": typed})
    assert answer.status_code == 200, answer.text
    items: list[dict[str, Any]] = answer.json()["items"]
    return [(item["kind"], item["shown"]) for item in items]


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("bert", [("model", "acme/a-bert"), ("model", "org/Bert_2")]),
        ("t_2", [("model", "org/Bert_2")]),
        ("owner:", [("owner", "acme"), ("owner", "org")]),
        ("owner:o", [("owner", "org")]),
        ("tag:round-", [("tag", f"round-{place}") for place in range(5)]),
        ('tag:"shared t', [("tag", "shared tag")]),
        ("base:org/3", [("base", "org/3")]),
        ("digit", [("attribute", "digit=0"), ("attribute", "digit=1")]),
        ("has:si", [("attribute", "site=north")]),
        ("site=n", [("attribute", "site=north")]),
        ("nothing", []),
        ("", []),
        ("\0", []),
    ],
)
def test_what_is_typed_is_completed(
    filled: Space, typed: str, expected: list[tuple[str, str]]
) -> None:
    """With what this space has, of the field that is named or of all."""
    assert expected == suggested(filled, typed)


def test_every_space_is_searched_from_pages_of_none(filled: Space) -> None:
    """Spaces come first, then names that begin with what is typed, then names that hold it."""
    other = Space(filled.http)
    other.put("7e3-bert", SMALL)
    other.put("org/x-7E3", SMALL)
    found = filled.http.get("/completions", params={"q": "7e3"}).json()["items"]
    expected = [(name, f"in {other.name}") for name in ("7e3-bert", "org/x-7E3")]
    assert expected == [(item["shown"], item["kind"]) for item in found]
    for item in found:
        assert item["shown"] in filled.http.get(item["address"]).text
    spaces = filled.http.get("/completions", params={"q": other.name.upper()}).json()["items"]
    assert [(other.name, "space")] == [(item["shown"], item["kind"]) for item in spaces]
    assert 200 == filled.http.get(spaces[0]["address"]).status_code
    for nothing in ("", "  ", "\0", "7e3-nowhere"):
        assert [] == filled.http.get("/completions", params={"q": nothing}).json()["items"]


def test_a_suggestion_finds_what_it_says(filled: Space) -> None:
    """A completed term is a query that finds models, and a model's suggestion leads to it."""
    for typed in ("bert", "owner:", "tag:", "base:", "digit", "site"):
        path = f"/spaces/{filled.name}/completions"
        for item in filled.http.get(path, params={"q": typed}).json()["items"]:
            page = filled.http.get(f"/spaces/{filled.name}", params={"q": item["text"]})
            assert '<table id="models"' in page.text, item
            if item["kind"] == "model":
                assert item["shown"] in filled.http.get(item["address"]).text


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("acc>0.5", ["acc>0.5 is no range: an attribute is asked for by its value, as in acc=0.5"]),
        ("bert acc>=1 loss<2", ["acc>=1 is no range", "loss<2 is no range"]),
        ("acc:1", ["fields are owner, tag, base, name, has, and an attribute is acc=1."]),
        ('site:"a b"', ['an attribute is site="a b".']),
        ("bert owner:acme digit=7 https://hub.example/x", []),
    ],
)
def test_what_no_search_understands_is_told(query: str, said: list[str]) -> None:
    """Ranges, and fields that are none; what a search understands is not."""
    found = misread(query)
    assert len(said) == len(found)
    assert all(each in sentence for each, sentence in zip(said, found, strict=True))
