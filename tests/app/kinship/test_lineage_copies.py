"""What a lineage says of models with the very same support, and what its nearest leaves out."""

from __future__ import annotations

from typing import Any

import httpx
import numpy as np
import pytest

from tests.support.fixtures import on_one_database
from tests.support.http_space import Space, ok, random_support, related

pytestmark = on_one_database

M, K = 10_000, 500
BASE = random_support(np.random.default_rng(1), M, K)
TUNED = related(np.random.default_rng(2), BASE, 0.8)
NEAREST = "'liar' is the nearest model that stands out"


@pytest.fixture
def kin(http: httpx.Client) -> Space:
    """A base with a fine-tune and four strangers."""
    layout = [{"name": "body", "shape": [M]}]
    space = Space(http, M, layout=layout, importance={"kind": "weight"})
    rng = np.random.default_rng(3)
    strangers = {f"stranger{at}": random_support(rng, M, K) for at in range(4)}
    space.put_all({"base": BASE, "tuned": TUNED, **strangers})
    return space


def change(space: Space, model: str, **body: Any) -> None:
    ok(space.http.patch(space.path("models", model), json=body))


def said_of(space: Space, model: str) -> str:
    """The summary of a model's lineage."""
    found: str = ok(space.http.get(space.path("lineage"), params={"model": model}))["summary"]
    return found


def date_of(space: Space, model: str) -> str:
    """When a model was first stored, as a summary writes it."""
    made: str = ok(space.http.get(space.path("models", model)))["created_at"]
    return f"first stored {made[:10]} {made[11:16]} UTC"


def test_copies_are_named_with_their_dates(kin: Space) -> None:
    """Both sides say it, whatever they declare, and no other model does."""
    kin.put("copy", BASE)
    change(kin, "copy", base_model="tuned")
    for model, other in (("base", "copy"), ("copy", "base")):
        assert (
            f"Its support is identical to that of {other!r} ({date_of(kin, other)}), and it was "
            f"{date_of(kin, model)}: copies, or models that were changed too little to tell."
        ) in said_of(kin, model)
    assert "identical" not in said_of(kin, "tuned")
    assert "identical" not in said_of(kin, "stranger0")


def test_a_copy_that_came_by_a_later_revision_says_so(kin: Space) -> None:
    """The date of the name alone would tell of another content."""
    kin.put("copy", TUNED)
    kin.put("copy", BASE)
    assert f"'copy' ({date_of(kin, 'copy')}, now revision 2)" in said_of(kin, "base")


def test_three_of_many_copies_are_named(kin: Space) -> None:
    """The others are counted, so that a summary stays short."""
    for name in ("a", "b", "c", "d", "e"):
        kin.put(name, BASE)
    said = said_of(kin, "base")
    named = [each for each in "abcde" if f"{each!r} (first stored" in said]
    assert [*"abc"] == named
    assert " and 2 more, and it was first stored" in said


def test_equal_similarity_of_a_signature_is_no_copy(kin: Space) -> None:
    """S = 1 of an estimate does not show that two supports are the same."""
    kin.put_signature("told", BASE.signature())
    assert "identical" not in said_of(kin, "base")
    assert "identical" not in said_of(kin, "told")


def test_a_copy_with_markup_and_a_long_name_is_text(kin: Space) -> None:
    """A name is quoted in the summary, and runs nothing on a page."""
    name = "x" * 190 + "é"
    kin.put(name, BASE)
    assert f"{name!r} (first stored" in said_of(kin, "base")


def test_the_nearest_apart_from_derivatives_is_called_so(kin: Space) -> None:
    """A root's nearest are its derivatives; the nearest other root is no nearest of all."""
    change(kin, "tuned", base_model="base")
    liar = related(np.random.default_rng(4), BASE, 0.6)
    kin.put("liar", liar)
    kin.put("of-liar", related(np.random.default_rng(5), liar, 0.9))
    change(kin, "of-liar", base_model="liar")
    said = said_of(kin, "base")
    assert f"{NEAREST}, apart from its declared derivatives:" in said


def test_the_nearest_apart_from_siblings_is_called_so(kin: Space) -> None:
    """Siblings are relatives, and no derivatives."""
    change(kin, "tuned", base_model="elsewhere")
    kin.put("liar", related(np.random.default_rng(4), TUNED, 0.6))
    kin.put("sibling", related(np.random.default_rng(5), TUNED, 0.9))
    change(kin, "sibling", base_model="elsewhere")
    change(kin, "base", base_model="elsewhere")
    said = said_of(kin, "tuned")
    assert f"{NEAREST}, apart from its declared relatives:" in said


def test_the_nearest_is_called_the_nearest(kin: Space) -> None:
    """Without relatives nothing is set apart."""
    assert "'tuned' is the nearest model that stands out: it may be" in said_of(kin, "base")
