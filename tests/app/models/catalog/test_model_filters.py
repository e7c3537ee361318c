"""The filters and orders of a listing of models, on each database."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from app.infra.db.pagination import encode_cursor
from modelkin import Support
from tests.app.models.catalog.test_models_api import listing
from tests.support.http_space import Space, assert_problem, ok

SMALL = Support.from_indices([1, 2, 3], 10_000)

Model = dict[str, Any]

MODELS: dict[str, Model] = {
    "acme/bert": {"attributes": {"digit": 7, "site": "north"}, "source": "hf://acme/bert"},
    "acme/bert-100_a": {
        "attributes": {"digit": "7"},
        "base_model": "acme/bert",
        "source": "100%_a",
    },
    "acme/gpt": {"attributes": {"digit": 7.0, "ready": True}, "base_model": "org/base"},
    "acmeX": {"attributes": {"digit": 8, "ready": False}, "base_model": "acme/bert"},
    "Org/Bert": {"attributes": {"loss": 1e-05, 'q"\\': "ü", "digit": None}},
    "org/é": {"attributes": {"ready": "true", "deep": {"digit": 7}, "a.b": [7]}, "tags": ["t"]},
    "org/z": {"attributes": {}, "tags": ["t", "u"], "base_model": "acme/bert"},
}


def fill(space: Space) -> Space:
    """Store all of them, in order."""
    for name, fields in MODELS.items():
        space.put(name, SMALL)
        ok(space.http.patch(space.path("models", name), json=fields))
    return space


@pytest.fixture(scope="module")
def filled(http: httpx.Client) -> Space:
    """A space with all of them, which no test changes."""
    return fill(Space(http))


def having(met: Callable[[str, Model], bool]) -> list[str]:
    """The names of the models that a condition holds for, in order."""
    return sorted(name for name, fields in MODELS.items() if met(name, fields))


def spells(text: str, value: Any) -> bool:
    """Whether a text is how one writes a value in a filter."""
    if isinstance(value, str):
        return text == value
    if isinstance(value, bool):
        return text == json.dumps(value)
    try:
        return isinstance(value, int | float) and float(text) == value
    except ValueError:
        return False


@pytest.mark.parametrize("prefix", ["acme", "acme/", "acme/bert-100_", "o", "org/é", "zz", "%"])
def test_a_prefix_finds_names_that_begin_with_it(filled: Space, prefix: str) -> None:
    """Letter by letter: a percent sign is one, and capitals are others."""
    assert having(lambda name, _: name.startswith(prefix)) == listing(filled, 2, prefix=prefix)


@pytest.mark.parametrize("text", ["bert", "BERT", "0%_", "0_", "hf:", "é", "BASE", "nowhere"])
def test_a_text_is_found_in_names_bases_and_sources(filled: Space, text: str) -> None:
    """Anywhere in them, in either case of ASCII letters."""

    def met(name: str, fields: Model) -> bool:
        texts = (name, fields.get("base_model", ""), fields.get("source", ""))
        return any(text.lower() in each.lower() for each in texts)

    assert having(met) == listing(filled, 2, text=text)


@pytest.mark.parametrize(
    "asked",
    ["digit=7", "digit=8", "digit=7.0", "site=north", "site=n", "ready=true", "ready=false",
     "loss=0.00001", 'q"\\=ü', "a.b=7", "digit=", "site=north=", "deep=7", "digit=null"],
)  # fmt: skip
def test_an_attribute_is_found_by_its_value(filled: Space, asked: str) -> None:
    """A text, a number and a truth value are found as one writes them; deeper ones are not."""
    key, _, value = asked.partition("=")
    found = having(lambda _, fields: spells(value, fields["attributes"].get(key)))
    assert found == listing(filled, 2, attribute=asked)


@pytest.mark.parametrize("key", ["digit", "deep", "a.b", 'q"\\', "nowhere"])
def test_an_attribute_is_found_by_its_key(filled: Space, key: str) -> None:
    """With any value, null and objects included."""
    found = having(lambda _, fields: key in fields["attributes"])
    assert found == listing(filled, 2, attribute=key)


def test_a_base_finds_the_models_that_declare_it(filled: Space) -> None:
    """Exactly that name."""
    found = having(lambda _, fields: fields.get("base_model") == "acme/bert")
    assert found == listing(filled, 1, base_model="acme/bert")
    assert [] == listing(filled, 1, base_model="acme/ber")


def test_filters_together_are_all_met(filled: Space) -> None:
    """Each narrows what the others leave."""
    both = listing(filled, 1, base_model="acme/bert", prefix="acme", attribute="digit=7")
    assert ["acme/bert-100_a"] == both
    assert ["org/z"] == listing(filled, 1, tag=["t", "u"], text="z")
    assert [] == listing(filled, 1, attribute=["digit=7", "digit=8"])


def test_the_newest_come_first(space: Space) -> None:
    """By their last change, in pages, with and without a filter."""
    filled = fill(space)
    ok(filled.http.patch(filled.path("models", "acme/gpt"), json={"tags": ["new"]}))
    newest = ["acme/gpt", *(name for name in reversed(MODELS) if name != "acme/gpt")]
    assert newest == listing(filled, 3, order="newest")
    found = [name for name in newest if name.startswith("acme/")]
    assert found == listing(filled, 1, order="newest", prefix="acme/")


def sized(space: Space) -> list[tuple[str, int, int]]:
    """Six models as name, size and revision, in the order in which they changed last."""
    models = [("e", 2, 1), ("b", 3, 2), ("é", 3, 3), ("c d", 1, 2), ("a/b", 3, 1), ("d", 10, 2)]
    for name, size, revisions in models:
        for place in range(revisions):
            space.put(name, Support.from_indices(range(place, place + size), 10_000))
    return models


@pytest.mark.slow
@pytest.mark.parametrize("limit", [1, 2, 4])
def test_models_are_listed_by_size_revisions_and_change(space: Space, limit: int) -> None:
    """Each order holds across pages, also among models with the same number, and with a filter."""
    models = sized(space)
    by_size = [name for name, *_ in sorted(models, key=lambda each: (each[1], each[0]))]
    by_revision = [name for name, *_ in sorted(models, key=lambda each: (each[2], each[0]))]
    assert by_size == listing(space, limit, order="smallest")
    assert by_size[::-1] == listing(space, limit, order="largest")
    assert by_revision[::-1] == listing(space, limit, order="most_revised")
    assert [name for name, *_ in models] == listing(space, limit, order="oldest")
    space.put("B", Support.from_indices([1], 10_000))
    assert ["b", "a/b", "B"] == listing(space, limit, order="largest", text="b")


def test_changes_between_pages_neither_hide_nor_repeat_a_model(space: Space) -> None:
    """Whatever is deleted, added or tagged meanwhile, a model whose size stays is listed once."""
    sized(space)
    params: dict[str, Any] = {"order": "largest", "limit": 2}
    first = ok(space.http.get(space.path("models"), params=params))
    assert ["d", "é"] == [item["model"] for item in first["items"]]
    assert 204 == space.http.delete(space.path("models", "é")).status_code
    space.put("z", Support.from_indices([1, 2, 3], 10_000))
    for name in ("a/b", "e"):
        ok(space.http.patch(space.path("models", name), json={"tags": ["new"]}))
    rest = listing(space, 2, order="largest", cursor=first["next_cursor"])
    assert ["z", "b", "a/b", "e", "c d"] == rest


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"attribute": "=7"}, "attribute"),
        ({"attribute": ""}, "attribute"),
        ({"attribute": "a" * 201}, "attribute"),
        ({"attribute": ["a"] * 11}, "attribute"),
        ({"attribute": "a=\0"}, "attribute"),
        ({"prefix": "\0"}, "prefix"),
        ({"prefix": "a" * 201}, "prefix"),
        ({"text": "\0"}, "text"),
        ({"base_model": "a//b"}, "base_model"),
        ({"order": "sideways"}, "order"),
        ({"order": "newest", "cursor": "YWJj"}, "cursor"),
        ({"order": "oldest", "cursor": "YWJj"}, "cursor"),
        *(
            ({"order": order, "cursor": encode_cursor(text)}, "cursor")
            for order in ("largest", "smallest", "most_revised")
            for text in ("7", "7 ", "a b", "-7 a", "7" * 20 + " a")
        ),
        ({"order": "newest", "cursor": "OTk5OTk5OTk5OTk5OTk5OTk5OTk5OTk5OTk5"}, "cursor"),
    ],
)
def test_a_filter_that_makes_no_sense_is_refused(
    space: Space, params: dict[str, Any], field: str
) -> None:
    """The answer names the parameter."""
    answer = space.http.get(space.path("models"), params=params)
    assert answer.status_code == 422, answer.text
    assert field in answer.text
    assert_problem(answer, 422, answer.json()["code"])
