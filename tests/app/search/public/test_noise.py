"""The noise of public spaces: what it is drawn from, and what an answer leaves out for its sake."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from app.infra.db.tables.catalog import SpaceRow
from app.infra.deadlines import Deadline
from app.infra.errors import PublicSpaceNotFound, TooMuch
from app.models.spaces.repositories.spaces import RETIRED
from app.search.public import search
from app.search.public.budgets import QueryBudgets
from app.search.public.scores import Rounding, score
from app.search.public.search import PublicSearch
from app.search.public.service import PublicSpaceService
from app.tenancy.auth.records import Tenant
from app.tenancy.auth.tenants import ensure_tenant, noise_key, store_token
from modelkin import Support
from modelkin.types.search import Neighbor
from modelkin.wire import SIGNATURE, SUPPORT
from tests.support.app.harness import AppHarness, open_keyed_app
from tests.support.backends import Backend
from tests.support.fixtures import on_one_database

M, K, STEPS = 10_000, 1_000, 20
MODELS, SHARED = 40, 525
QUERIES = [Support.from_indices([*range(K - 1), 9_000 + i], M) for i in range(4)]
WIDE = {"step": 0.05, "floor": 0.1}


@pytest.fixture(scope="module")
def app(backend: Backend, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AppHarness]:
    """The service of this file, with two public spaces of the same models."""
    with open_keyed_app(tmp_path_factory.mktemp("app"), backend) as made:
        for space in ("one", "other"):
            open_space(made, space)
            for i in range(MODELS):
                made.put_support(space, f"org/m{i:02d}", support(i))
        yield made


def support(i: int) -> Support:
    """Its similarity to a query is between two steps, so each has half of the draws."""
    first = K + i * 50
    return Support.from_indices([*range(SHARED), *range(first, first + K - SHARED)], M)


def open_space(app: AppHarness, space: str) -> None:
    app.create_space(space, M)
    assert 200 == app.http.put(f"/v1/spaces/{space}/public", json=WIDE).status_code


def scores(app: AppHarness, space: str, query: Support = QUERIES[0]) -> dict[str, float]:
    answer = app.http.post(
        f"/v1/public/default/{space}/neighbors",
        content=query.to_bytes(),
        headers={"Content-Type": SUPPORT},
        params={"k": 100},
    )
    assert 200 == answer.status_code, answer.text
    return {item["model"]: item["score"] for item in answer.json()["items"]}


def drawn(app: AppHarness, space: str) -> dict[str, tuple[float, ...]]:
    """The scores of each model, by all queries."""
    answers = [scores(app, space, query) for query in QUERIES]
    return {name: tuple(found[name] for found in answers) for name in answers[0]}


def rounded(secret: bytes, space_id: int) -> dict[str, float]:
    """The scores as they would be with this secret."""
    rounding = Rounding(STEPS, secret, space_id, QUERIES[0].indices.tobytes())
    contents = {f"org/m{i:02d}": support(i).digest.encode() for i in range(MODELS)}
    return {name: rounding(content, SHARED / K) / STEPS for name, content in contents.items()}


@on_one_database
def test_another_space_has_other_noise(app: AppHarness) -> None:
    """Of the same models, names and queries: one's own space says nothing of that of another."""
    one, other = drawn(app, "one"), drawn(app, "other")
    same = [a == b for name in one for a, b in zip(one[name], other[name], strict=True)]
    assert MODELS * len(QUERIES) == len(same)
    assert 0.25 < sum(same) / len(same) < 0.75


@on_one_database
def test_noise_is_drawn_with_a_secret_that_is_used_for_nothing_else(app: AppHarness) -> None:
    """It is neither empty nor the token that names files."""
    with app.database.reading() as session:
        secret, token = noise_key(session), store_token(session)
    space_id = app.services[PublicSpaceService].find("default", "one").space_id
    found = scores(app, "one")
    assert rounded(secret, space_id) == found
    assert 32 == len(secret)
    for known in (b"", token.encode()):
        assert rounded(known, space_id) != found


@on_one_database
@pytest.mark.slow
def test_noise_follows_the_content_and_not_the_name(app: AppHarness) -> None:
    """Copies under other names show nothing new; a changed support has draws of its own."""
    open_space(app, "copies")
    for i in range(8):
        app.put_support("copies", f"org/copy-{i}", support(0))
        alone = app.http.put(
            f"/v1/spaces/copies/signatures/org/alone-{i}",
            content=support(0).signature().to_bytes(),
            headers={"Content-Type": SIGNATURE},
        )
        assert 201 == alone.status_code
    found = drawn(app, "copies")
    assert 16 == len(found)
    assert 1 == len({each for name, each in found.items() if "copy" in name})
    assert 1 == len({each for name, each in found.items() if "alone" in name})
    for i in range(8):  # as similar to the query as before
        app.put_support("copies", f"org/copy-{i}", support(1 + i))
    found = drawn(app, "copies")
    assert 1 < len({each for name, each in found.items() if "copy" in name})


@on_one_database
def test_nothing_that_shares_no_index_is_shown(app: AppHarness) -> None:
    """However low the floor is: noise makes one step of nothing, and never two."""
    for i in range(20):
        nothing = Support.from_indices([9_000 + i], M)
        assert {} == scores(app, "one", nothing)


def test_a_space_that_went_before_a_query_is_counted_is_not_found(app: AppHarness) -> None:
    """Withdrawn or deleted: no answer, and no budget is spent. A new budget counts at once."""
    budgets, spaces = app.services[QueryBudgets], app.services[PublicSpaceService]
    with app.database.writing() as session:
        caller: Tenant = ensure_tenant(session, "late")
    open_space(app, "brief")
    asked = spaces.find("default", "brief")
    url = "/v1/spaces/brief/public"
    assert 200 == app.http.put(url, json={"step": 0.1, "daily_queries": 7}).status_code
    public, left = budgets.take(asked, caller)
    assert (0.1, 6) == (public.settings.step, left)
    assert 204 == app.http.delete(url).status_code
    with pytest.raises(PublicSpaceNotFound):
        budgets.take(asked, caller)
    assert 204 == app.http.delete("/v1/spaces/brief").status_code
    with pytest.raises(PublicSpaceNotFound):
        budgets.take(asked, caller)


def test_a_space_that_the_version_before_deleted_is_public_no_more(app: AppHarness) -> None:
    """It renames the row of the space, and leaves that of the public space to the clean-up."""
    open_space(app, "roll")
    asked = app.services[PublicSpaceService].find("default", "roll")
    with app.database.writing() as session:
        row = session.get(SpaceRow, asked.space_id)
        assert row is not None
        row.name = f"{RETIRED}{row.id}"
    assert "roll" not in [each["space"] for each in app.http.get("/v1/public").json()["items"]]
    assert 404 == app.http.get("/v1/public/default/roll").status_code
    open_space(app, "roll")
    assert asked.space_id != app.services[PublicSpaceService].find("default", "roll").space_id


# --- more models than are compared ------------------------------------------------------------


def graded(*similarities: float) -> list[Neighbor]:
    """Neighbours of falling similarities; among equal scores the last one would be the first."""
    return [
        Neighbor(f"m{999 - i}", similarity, 0.5, "exact", 0.0, None)
        for i, similarity in enumerate(similarities)
    ]


FALLING = [1 - i / 100 for i in range(50)]
"""A fifth of a step each."""


def answer(
    nearest: Sequence[Neighbor], seed: int, *, k: int = 100, slack: float | None = None
) -> tuple[list[tuple[str, float]], bool]:
    contents = {item.model: item.model.encode() for item in nearest}
    rounding = Rounding(STEPS, b"secret", 1, seed.to_bytes(4, "big"))
    items, left_out = score(nearest, contents, rounding, steps=STEPS, least=2, k=k, slack=slack)
    return [(item.model, item.score) for item in items], left_out


@pytest.mark.parametrize("slack", [0.0, 0.08])
def test_an_answer_of_some_models_is_the_beginning_of_that_of_all(slack: float) -> None:
    """So what it leaves out follows scores alone: no model that was not compared has one as large.

    Where an index leaves out near models, what it may have missed counts, too.
    """
    shown = 0
    compared = graded(*FALLING[:41], 0.5)
    every = graded(*FALLING[:41], 0.5, *[0.5 + slack] * 60)
    for seed in range(50):
        whole, left_out = answer(every, seed)
        assert not left_out
        items, left_out = answer(compared, seed, slack=slack)
        assert left_out
        assert items == whole[: len(items)]
        shown += len(items)
    assert shown > 50 * 15


def test_an_answer_that_is_full_says_what_it_leaves_out() -> None:
    """Whether models from the floor on are left out, whatever the number of items."""
    nearest = graded(*FALLING)
    assert (5, True) == (lambda found: (len(found[0]), found[1]))(
        answer(nearest, 1, k=5, slack=0.0)
    )
    assert not answer(nearest, 1, k=5)[1]
    assert ([], False) == answer([], 1)


def test_a_deleted_model_has_no_score() -> None:
    """Between the search and the reading of its digest."""
    rounding = Rounding(STEPS, b"secret", 1, b"query")
    [kept] = score(
        graded(0.5, 0.5), {"m998": b"x"}, rounding, steps=STEPS, least=2, k=9, slack=None
    )[0]
    assert "m998" == kept.model


@on_one_database
@pytest.mark.slow
def test_a_space_of_more_models_than_are_compared(
    app: AppHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its models of the last steps are left out, and the answer says so."""
    open_space(app, "large")
    for i in range(30):
        shared = K - 30 * i
        indices = [*range(shared), *range(5_000, 5_000 + K - shared)]
        app.put_support("large", f"org/m{i:02d}", Support.from_indices(indices, M))
    query = Support.from_indices(range(K), M)
    whole = scores(app, "large", query)
    monkeypatch.setattr(search, "_COMPARED", 15)
    url, headers = "/v1/public/default/large/neighbors", {"Content-Type": SUPPORT}
    found = app.http.post(url, content=query.to_bytes(), headers=headers, params={"k": 100}).json()
    items = [(item["model"], item["score"]) for item in found["items"]]
    assert found["truncated"]
    assert 2 < len(items) < 15
    assert items == list(whole.items())[: len(items)]


def test_a_query_that_is_late_has_no_answer(app: AppHarness) -> None:
    """Which models had been compared by then follows no score. It stays counted."""
    public = app.services[PublicSpaceService].find("default", "one")
    budgets = app.services[QueryBudgets]
    with app.database.writing() as session:
        caller = ensure_tenant(session, "hurried")
    ask = app.services[PublicSearch].neighbors
    with app.database.reading() as session:
        space = app.services[PublicSpaceService].space(session, public)
        with pytest.raises(TooMuch, match="public space"):
            ask(session, public, space, QUERIES[0], caller=caller, k=10, deadline=Deadline(0))
    assert 999 == budgets.left(public, caller)
