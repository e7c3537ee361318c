"""Near matches of unknown names, by themselves and among the rows of a database."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.near_names import did_you_mean, mistyped, nearest
from tests.support.http_space import Space, assert_problem

TAGS = ["k", "method", "min_similarity", "model", "tag"]
NAMES = st.text("abcdef/-.", min_size=1, max_size=12)


@pytest.mark.parametrize(
    ("name", "known", "meant"),
    [
        ("tags", TAGS, "tag"),
        ("K", TAGS, "k"),
        ("min_sim", TAGS, "min_similarity"),
        ("colour", TAGS, None),
        ("", TAGS, None),
        ("birds", ["acme/birds", "bird"], "acme/birds"),
        ("acme/birds", ["birds", "acme/words"], "birds"),
        ("ACME/Birds", ["acme/birdz", "acme/birds"], "acme/birds"),
        ("acme/brids", ["acme/roads", "acme/birds", "other/brid"], "acme/birds"),
        ("acme/nope", ["acme/ünï", "acme/mnpq"], None),
        ("acme/typo", ["acme/CAPS"], None),
        ("acme/tpyo", ["acme/CAPS", "acme/typo"], "acme/typo"),
        ("acme/ants-tuned", ["acme/ants-chat", "acme/ants-tune"], "acme/ants-tune"),
        ("axaa", ["aaa"], "aaa"),
        ("a" * 5_000, ["a" * 4_999], None),
        ("abcxyz", ["abcde"], None),
        ("abcdxy", ["abcd"], "abcd"),
        ("abssc", ["abssx", "abß"], "abß"),
        ("xxssy", ["ß"], None),
    ],
)
def test_the_nearest_name(name: str, known: list[str], meant: str | None) -> None:
    """Case and a left-out ``org/`` decide first, then the characters in common."""
    assert meant == nearest(name, known)
    assert did_you_mean(name, known) == ("" if meant is None else f"; did you mean {meant!r}?")


@settings(max_examples=200)
@given(name=NAMES, known=st.lists(NAMES, max_size=8), at=st.integers(0, 11))
def test_one_letter_more_is_found(name: str, known: list[str], at: int) -> None:
    """The answer is one of the known names, and a name with a letter more is near to itself."""
    found = nearest(name, known)
    assert found is None or (found in known and found != name)
    assert name == nearest(f"{name[:at]}x{name[at:]}", [name])


def test_the_cost_has_a_bound() -> None:
    """300 long names of two letters, the worst that a tenant can store, take below a second
    of the processor.
    """
    names = ["".join("ab"[(i * j) % 13 % 2] for i in range(200)) for j in range(1, 301)]
    before = time.process_time()
    assert nearest("".join("ab"[i * 7 % 11 % 2] for i in range(200)), names) in names
    assert time.process_time() - before < 1


@pytest.fixture
def stocked(space: Space) -> Space:
    """A space with models of which two differ in case alone."""
    for name in ("acme/birds", "acme/Roads", "zeta/base"):
        space.http.put(space.path("supports", name), json={"indices": [1]}).raise_for_status()
    return space


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("models/acme/brids", "acme/birds"),
        ("neighbors?model=ACME/BIRDS", "acme/birds"),
        ("lineage?model=base", "zeta/base"),
        ("overlap?a=acme/birds&b=acme/roads", "acme/Roads"),
        ("donors?target=eta/base", "zeta/base"),
    ],
)
def test_a_missing_model_names_the_nearest(stocked: Space, path: str, meant: str) -> None:
    """``model_not_found`` offers a model of the same space, whichever operation asks."""
    answer = stocked.http.get(f"/v1/spaces/{stocked.name}/{path}")
    detail = assert_problem(answer, 404, "model_not_found")
    assert detail.endswith(f"in space {stocked.name!r}; did you mean {meant!r}?")


def test_missing_models_of_a_list_name_the_nearest(stocked: Space) -> None:
    """So do matrices and clusterings, which name the first of several."""
    body = {"models": ["acme/bird", "acme/birds", "nothing"]}
    for what in ("similarity", "clusterings"):
        answer = stocked.http.post(stocked.path(what), json=body)
        detail = assert_problem(answer, 404, "model_not_found")
        assert "'acme/bird'" in detail
        assert detail.endswith("(and 1 more); did you mean 'acme/birds'?")


def test_nothing_near_is_not_invented(stocked: Space) -> None:
    """A name that is like no other is only said to be missing."""
    answer = stocked.http.get(stocked.path("models", "qwertz"))
    assert assert_problem(answer, 404, "model_not_found").endswith(f"in space {stocked.name!r}")


def test_a_missing_space_names_the_nearest(space: Space) -> None:
    """``space_not_found`` offers a space of the tenant."""
    answer = space.http.get(f"/v1/spaces/{space.name}x")
    detail = assert_problem(answer, 404, "space_not_found")
    assert detail.endswith(f"there is no space '{space.name}x'; did you mean {space.name!r}?")


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("acme/lm-bsae", "acme/lm-base"),
        ("acme/lm-bases", "acme/lm-base"),
        ("acme/lm-chat", None),
        ("acme/llama-8b", None),
        ("acme/lm-base" * 40, None),
    ],
)
def test_only_what_is_surely_mistyped_is_said_unasked(name: str, meant: str | None) -> None:
    """A name of another model of a series may be right, though nothing of it is known."""
    assert meant == mistyped(name, ["acme/lm-base", "acme/llama-7b"])
