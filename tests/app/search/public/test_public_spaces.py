"""Public spaces: other tenants ask them for neighbours, and get scores in steps, nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest
from sqlalchemy import select
from starlette.testclient import TestClient

from app.infra.db.database import Database
from app.infra.db.tables.public import PublicQueryCountRow
from app.infra.errors import QueryBudgetSpent
from app.search.public.budgets import QueryBudgets
from app.search.public.service import PublicSpaceService
from app.tenancy.auth.records import Tenant
from app.tenancy.auth.service import KeyService
from app.tenancy.auth.tenants import ensure_tenant
from modelkin import Support
from modelkin.wire import SIGNATURE, SUPPORT
from tests.support.app.harness import AppHarness, open_keyed_app
from tests.support.backends import Backend
from tests.support.declared_problems import OPERATIONS
from tests.support.provocations import VALID

M = 10_000
SETTINGS = "/v1/spaces/atlas/public"
PUBLIC = "/v1/public/default/atlas"
DEFAULTS = {"step": 0.05, "floor": 0.3, "daily_queries": 1000, "description": ""}
ID = "0198c7a2-5b7e-7cc3-98c4-dc0c0c07398f"

Headers = dict[str, str]


@pytest.fixture(scope="module")
def app(backend: Backend, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AppHarness]:
    """The service of this file, with a space of 40 models, of which one has a signature alone."""
    with open_keyed_app(tmp_path_factory.mktemp("app"), backend) as made:
        made.create_space("atlas", M)
        for name, support in supports().items():
            made.put_support("atlas", name, support, tag="secret-tag")
        alone = supports()["org/m39"].signature().to_bytes()
        headers = {"Content-Type": SIGNATURE}
        url = "/v1/spaces/atlas/signatures/org/alone"
        assert 201 == made.http.put(url, content=alone, headers=headers).status_code
        yield made


@pytest.fixture(scope="module")
def stranger(app: AppHarness) -> Headers:
    """A key of another tenant."""
    return app.headers_of("stranger")


@pytest.fixture
def public(app: AppHarness) -> Iterator[TestClient]:
    """The service while the space is public with the defaults."""
    publish(app.http)
    yield app.http
    assert 204 == app.http.delete(SETTINGS).status_code


def supports() -> dict[str, Support]:
    """Supports that share from 2.5% to all of the query's indices."""
    rng, found = np.random.default_rng(5), dict[str, Support]()
    for i in range(40):
        shared = (i + 1) * 25
        others = rng.choice(np.arange(1_000, M), 1_000 - shared, replace=False)
        indices = np.sort(np.concatenate([np.arange(shared), others]))
        found[f"org/m{i:02d}"] = Support.from_indices(indices, M)
    return found


def query() -> Support:
    return Support.from_indices(range(1_000), M)


def publish(http: TestClient, **settings: Any) -> dict[str, Any]:
    answer = http.put(SETTINGS, json=settings)
    assert 200 == answer.status_code, answer.text
    made: dict[str, Any] = answer.json()
    return made


def ask(
    http: TestClient, who: Headers, content: bytes | None = None, kind: str = SUPPORT, k: int = 100
) -> Any:
    content = query().to_bytes() if content is None else content
    headers = {**who, "Content-Type": kind}
    return http.post(f"{PUBLIC}/neighbors", content=content, headers=headers, params={"k": k})


def test_a_space_is_private_until_its_owner_says_otherwise(
    app: AppHarness, stranger: Headers
) -> None:
    """Others cannot distinguish it from one that does not exist; and again from the opt-out on."""
    asked = ("/v1/public/default/atlas", "/v1/public/default/never", "/v1/public/nobody/atlas")

    def refused() -> None:
        details = set()
        for path in asked:
            answer = app.http.get(path, headers=stranger)
            assert (404, "public_space_not_found") == (answer.status_code, answer.json()["code"])
            owner, space = path.split("/")[3:]
            details.add(answer.json()["detail"].replace(owner, "").replace(space, ""))
        assert 1 == len(details)
        assert 404 == ask(app.http, stranger).status_code
        assert [] == app.http.get("/v1/public", headers=stranger).json()["items"]
        assert 404 == app.http.get(SETTINGS).status_code

    refused()
    made = publish(app.http)
    assert DEFAULTS == {name: made[name] for name in DEFAULTS}
    assert 200 == ask(app.http, stranger).status_code
    assert 204 == app.http.delete(SETTINGS).status_code
    refused()
    assert 204 == app.http.delete(SETTINGS).status_code


def test_scores_are_steps_and_the_only_figures(public: TestClient, stranger: Headers) -> None:
    """An answer has names and scores, the largest first and ties by name, from the floor on."""
    for content, kind in (
        (query().to_bytes(), SUPPORT),
        (query().signature().to_bytes(), SIGNATURE),
    ):
        answer = ask(public, stranger, content, kind).json()
        assert {"items", "step", "floor", "remaining", "truncated", "degraded"} == set(answer)
        items = answer["items"]
        assert 22 <= len(items) <= 38
        for item in items:
            assert {"model", "score"} == set(item)
            assert item["score"] in {n / 20 for n in range(6, 21)}
        order = [(-item["score"], item["model"]) for item in items]
        assert sorted(order) == order
        assert not answer["truncated"]
        assert not answer["degraded"]
    exact = {f"org/m{i:02d}": (i + 1) / 40 for i in range(40)}
    found = ask(public, stranger).json()["items"]
    assert all(
        abs(item["score"] - exact[item["model"]]) < 0.075
        for item in found
        if item["model"] in exact
    )


def test_the_same_query_has_the_same_answer(public: TestClient, stranger: Headers) -> None:
    """In whatever form, from whichever tenant, and cut at any k: to ask again shows nothing new.

    Octaves are not compared, so they are no other query.
    """
    first = ask(public, stranger).json()["items"]
    raw, octets = query().indices.astype("<u4").tobytes(), "application/octet-stream"
    listed = b'{"indices": %s}' % str(list(range(1_000))).encode()
    octaves = [(i + 1).bit_length() - 1 for i in reversed(range(1_000))]
    ordered = b'{"indices": %s, "octaves": %s}' % (
        str(list(range(1_000))).encode(),
        str(octaves).encode(),
    )
    json = "application/json"
    other = {"Authorization": public.headers["Authorization"]}
    for who in (stranger, other):
        for content, kind in ((None, SUPPORT), (raw, octets), (listed, json), (ordered, json)):
            assert first == ask(public, who, content, kind).json()["items"]
    assert first[:7] == ask(public, stranger, k=7).json()["items"]


def test_another_query_is_rounded_in_another_way(public: TestClient, stranger: Headers) -> None:
    """No model stays on one side of a step while a query changes by one index."""
    seen: dict[str, set[float]] = {}
    for more in range(10):
        near = Support.from_indices([*range(999), 5_000 + more], M)
        for item in ask(public, stranger, near.to_bytes()).json()["items"]:
            seen.setdefault(item["model"], set()).add(item["score"])
    assert sum(len(scores) > 1 for scores in seen.values()) > len(seen) / 2
    assert seen["org/m20"] <= {0.45, 0.5, 0.55}  # its similarity is 0.524 or 0.525


@pytest.mark.slow
def test_a_stranger_can_do_nothing_else(public: TestClient, stranger: Headers) -> None:
    """Every operation in a space is a 404 to it, public or not; so is the opt-out."""
    inside = [each for each in OPERATIONS.values() if each.path.startswith("/v1/spaces/{space}")]
    assert len(inside) > 50
    names = {"space": "atlas", "model": "org/m00", "cluster": "1"}
    names |= dict.fromkeys(("attempt", "shard", "piece"), "0")
    for operation in inside:
        path = re.sub(r"{(\w+)}", lambda found: names.get(found[1], ID), operation.path)
        valid = {name: v for name, v in VALID.get(operation.name, {}).items() if name != "at"}
        valid["headers"] = {**valid.get("headers", {}), **stranger, "Member-Token": "x"}
        answers = [
            public.request(operation.method, path.replace("atlas", space), **valid)
            for space in ("atlas", "never")
        ]
        codes = {(answer.status_code, answer.json()["code"]) for answer in answers}
        assert {(404, "space_not_found")} == codes, operation.name
    assert 200 == public.get(SETTINGS).status_code


def test_what_is_shown_of_a_public_space(public: TestClient, stranger: Headers) -> None:
    """What a query has to fit, and what the owner says of it; no counts, tags or layouts."""
    publish(public, step=0.1, floor=0.5, daily_queries=50, description="Ask away: ü")
    shown = public.get(PUBLIC, headers=stranger).json()
    listed = public.get("/v1/public", headers=stranger).json()["items"]
    assert [{name: shown[name] for name in listed[0]}] == listed
    assert {
        "owner", "space", "description", "step", "floor", "daily_queries", "created_at",
        "num_parameters", "layout_digest", "importance", "blinding", "signature", "remaining",
    } == set(shown)  # fmt: skip
    assert {"kind", "base"} == set(shown["importance"]), "its note is for people of the tenant"
    assert ("default", "atlas", "Ask away: ü") == (
        shown["owner"],
        shown["space"],
        shown["description"],
    )
    assert (M, 256) == (shown["num_parameters"], shown["signature"]["num_perm"])
    scores = {item["score"] for item in ask(public, stranger).json()["items"]}
    assert scores <= {0.5, 0.6, 0.7, 0.8, 0.9, 1.0}


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"step": 0.03}, "step"),
        ({"step": 0}, "step"),
        ({"step": "0.1"}, "step"),
        ({"floor": 0.05}, "floor"),
        ({"step": 0.1, "floor": 0.1}, "floor"),
        ({"floor": 1.01}, "floor"),
        ({"daily_queries": 0}, "daily_queries"),
        ({"daily_queries": 1_000_001}, "daily_queries"),
        ({"description": "x" * 501}, "description"),
        ({"description": "two\nlines"}, "description"),
        ({"anonymous": True}, "anonymous"),
    ],
)
def test_settings_that_cannot_be_are_named(
    app: AppHarness, settings: dict[str, Any], field: str
) -> None:
    """They are a 422, and the space stays as it was."""
    answer = app.http.put(SETTINGS, json=settings)
    assert 422 == answer.status_code, answer.text
    assert field == answer.json()["errors"][0]["field"]
    assert 404 == app.http.get(SETTINGS).status_code


def test_only_an_admin_opens_a_space(app: AppHarness) -> None:
    """A key that writes models cannot show them to others, nor hide them."""
    with app.database.writing() as session:
        key = app.services[KeyService].create(session, "default", scopes=["read", "write"])
    writer = {"Authorization": f"Bearer {key}"}
    assert 403 == app.http.put(SETTINGS, json={}, headers=writer).status_code
    assert 403 == app.http.delete(SETTINGS, headers=writer).status_code
    assert 404 == app.http.get(SETTINGS, headers=writer).status_code
    refused = app.http.get("/v1/public", headers={"Authorization": ""})
    assert 401 == refused.status_code


def test_only_spaces_of_supports_are_public(app: AppHarness) -> None:
    """A data subspace shows mean samples."""
    app.http.post("/v1/spaces", json={"name": "data", "kind": "subspaces", "num_parameters": 8})
    answer = app.http.put("/v1/spaces/data/public", json={})
    assert (409, "wrong_kind") == (answer.status_code, answer.json()["code"])


def test_a_budget_is_exact_however_many_ask_at_once(public: TestClient, app: AppHarness) -> None:
    """Each tenant has its own, no query beyond it is answered, and refused bodies take nothing."""
    publish(public, daily_queries=6)
    who = app.headers_of("crowd")
    assert 422 == ask(public, who, b"no support").status_code
    other = Support.from_indices([1, 2, 3], M + 1).to_bytes()
    assert 409 == ask(public, who, other).status_code
    assert 6 == public.get(PUBLIC, headers=who).json()["remaining"]
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda _: ask(public, who), range(12)))
    answered = [each.json()["remaining"] for each in answers if each.status_code == 200]
    assert [0, 1, 2, 3, 4, 5] == sorted(answered)
    refused = [each for each in answers if each.status_code != 200]
    assert {(429, "query_budget_spent")} == {(r.status_code, r.json()["code"]) for r in refused}
    assert all(0 < int(each.headers["Retry-After"]) <= 24 * 3600 for each in refused)
    assert 200 == ask(public, app.headers_of("another")).status_code
    publish(public, daily_queries=7)
    assert 0 == ask(public, who).json()["remaining"]


def test_a_budget_is_full_again_at_midnight(public: TestClient, app: AppHarness) -> None:
    """Of UTC; private and public again on one day, the space has counted on. Old counts go."""
    publish(public, daily_queries=2)
    now = datetime(2031, 5, 4, 23, 59, 50, tzinfo=UTC)
    budgets = QueryBudgets(app.services[Database], lambda: now)
    spaces = app.services[PublicSpaceService]
    with app.database.writing() as session:
        caller: Tenant = ensure_tenant(session, "nightly")
    asked = spaces.find("default", "atlas")
    assert [1, 0] == [budgets.take(asked, caller)[1] for _ in range(2)]
    app.http.delete(SETTINGS)
    publish(public, daily_queries=2)
    asked = spaces.find("default", "atlas")
    with pytest.raises(QueryBudgetSpent) as spent:
        budgets.take(asked, caller)
    assert 10 == spent.value.retry_after
    now += timedelta(seconds=10)
    assert 2 == budgets.left(asked, caller)
    assert 1 == budgets.take(asked, caller)[1]

    def days() -> set[int]:
        with app.database.reading() as session:
            return set(session.scalars(select(PublicQueryCountRow.day)))

    day = int(now.timestamp()) // (24 * 3600)
    now += timedelta(days=30)
    budgets.prune()
    assert {day} == days(), "the next query changes a row, and waits for no lock of the space"
    now += timedelta(days=1)
    budgets.prune()
    assert set() == days()


@pytest.mark.parametrize("at_once", [500, -1])
def test_a_deleted_space_is_public_no_more(
    app: AppHarness, stranger: Headers, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    """Nor is another that gets its name, also while rows of a large one are still there."""
    monkeypatch.setattr("app.models.spaces.service.MAX_MODELS_AT_ONCE", at_once)
    app.create_space("brief")
    assert 200 == app.http.put("/v1/spaces/brief/public", json={}).status_code
    assert 200 == app.http.get("/v1/public/default/brief", headers=stranger).status_code
    assert 204 == app.http.delete("/v1/spaces/brief").status_code
    app.create_space("brief")
    assert 404 == app.http.get("/v1/public/default/brief", headers=stranger).status_code
    assert [] == app.http.get("/v1/public", headers=stranger).json()["items"]
    assert 204 == app.http.delete("/v1/spaces/brief").status_code


def test_public_spaces_are_listed_page_by_page(app: AppHarness, stranger: Headers) -> None:
    """Of all tenants, by the names of the tenant and the space."""
    other = app.headers_of("beta")
    for who, names in ((other, ("x", "y")), (app.headers_of("default"), ("p", "q"))):
        for name in names:
            made = app.http.post(
                "/v1/spaces", json={"name": name, "num_parameters": 9}, headers=who
            )
            assert 201 == made.status_code
            assert (
                200 == app.http.put(f"/v1/spaces/{name}/public", json={}, headers=who).status_code
            )
    found, cursor = [], None
    while True:
        params = {"limit": 1} if cursor is None else {"limit": 1, "cursor": cursor}
        page = app.http.get("/v1/public", params=params, headers=stranger).json()
        found += [(item["owner"], item["space"]) for item in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert [("beta", "x"), ("beta", "y"), ("default", "p"), ("default", "q")] == found
