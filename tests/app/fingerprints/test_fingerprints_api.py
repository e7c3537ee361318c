"""/v1/fingerprints over HTTP: bodies, conditions, facts, pages, tenants, quotas and events."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest
from starlette.routing import Route

from app.infra.http.routing import MODEL
from app.main import described_routes
from app.tenancy.auth.tenants import ensure_tenant
from app.tenancy.quotas.service import QuotaService
from modelkin._validation import QUESTIONS
from modelkin.wire import FINGERPRINT, JSON
from tests.support.app.harness import AppHarness, open_keyed_app
from tests.support.backends import Backend
from tests.support.models.made_fingerprints import made_fingerprint
from tests.support.servers.webhook_receiver import Receiver, receiving

FACTS: dict[str, Any] = {
    "base_models": ["acme/base", "acme/other"],
    "base_relation": "merge",
    "license": "apache-2.0",
    "published_at": "2026-01-02T03:04:05Z",
    "file_bytes": 1 << 40,
}
SAID: dict[str, Any] = {
    "base_model": FACTS["base_models"],
    **{k: v for k, v in FACTS.items() if k[5:] != "models"},
}


@pytest.fixture(scope="module")
def app(backend: Backend, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AppHarness]:
    with open_keyed_app(tmp_path_factory.mktemp("fingerprints"), backend) as opened:
        yield opened


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as made:
        yield made


def put(
    app: AppHarness, name: str, seed: int, headers: dict[str, str] | None = None, **query: Any
) -> Any:
    return app.http.put(
        f"/v1/fingerprints/{name}",
        content=made_fingerprint(seed).to_bytes(),
        headers={"Content-Type": FINGERPRINT, **(headers or {})},
        params=query,
    )


def test_names_of_models_that_end_as_questions(app: AppHarness) -> None:
    """With the last slash as %2F the name is a model's; else it asks about the shorter name. The
    SDK knows all questions.
    """
    beginning = f"/v1/fingerprints{MODEL}/"
    paths = [route.path for route in described_routes() if isinstance(route, Route)]
    asked = {path.removeprefix(beginning) for path in paths if path.startswith(beginning)}
    assert QUESTIONS == asked
    put(app, "end", 1)
    for question in sorted(QUESTIONS):
        assert 201 == put(app, f"end/{question}", 2).status_code
        found = app.http.get(f"/v1/fingerprints/end%2F{question}")
        assert f"end/{question}" == found.json()["model"], found.text
        query = {"with": "end"} if question == "tensors" else {}
        answer = app.http.get(f"/v1/fingerprints/end/{question}", params=query)
        assert 200 == answer.status_code, answer.text
        assert found.json()["digest"] not in answer.text
        nested = app.http.get(f"/v1/fingerprints/end%2F{question}/anatomy")
        assert f"end/{question}" == nested.json()["model"]


def test_a_fingerprint_is_put_and_got(app: AppHarness) -> None:
    """201 and 200, with what the query says; as JSON by default, and whole where Accept asks."""
    made = put(app, "org/a", 1, **SAID)
    assert 201 == made.status_code, made.text
    shown = made.json()
    assert FACTS == {name: shown[name] for name in FACTS}
    assert ("org/a", 1, 4, "client") == tuple(
        shown[name] for name in ("model", "revision", "scale", "stated_by")
    )
    again = put(app, "org/a", 1, **SAID)
    assert (200, shown) == (again.status_code, again.json())
    got = app.http.get("/v1/fingerprints/org/a")
    assert (shown, made.headers["ETag"]) == (got.json(), got.headers["ETag"])
    whole = app.http.get("/v1/fingerprints/org/a", headers={"Accept": FINGERPRINT})
    assert made_fingerprint(1).to_bytes() == whole.content
    assert (FINGERPRINT, "Accept") == (whole.headers["Content-Type"], whole.headers["Vary"])
    other = put(app, "org/a", 2)
    assert (200, 2, []) == (
        other.status_code,
        other.json()["revision"],
        other.json()["base_models"],
    )
    refused = app.http.get("/v1/fingerprints/org/a", headers={"Accept": "text/html"})
    assert 406 == refused.status_code


def test_a_date_is_the_same_by_another_offset(app: AppHarness) -> None:
    """Though SQLite keeps no offset."""
    date = "2026-01-02T03:04:05+02:00"
    assert 201 == put(app, "dated", 1, published_at=date).status_code
    got = app.http.get("/v1/fingerprints/dated").json()["published_at"]
    assert datetime.fromisoformat(date) == datetime.fromisoformat(got)


def test_a_condition_holds_under_the_lock(app: AppHarness) -> None:
    """If-Match, If-None-Match and 304, as for models."""
    tag = put(app, "if", 1, {"If-None-Match": "*"}).headers["ETag"]
    assert 412 == put(app, "if", 2, {"If-None-Match": "*"}).status_code
    known = {"If-None-Match": tag}
    assert 304 == app.http.get("/v1/fingerprints/if", headers=known).status_code
    changed = put(app, "if", 2, {"If-Match": tag})
    assert 200 == changed.status_code
    assert 412 == put(app, "if", 3, {"If-Match": tag}).status_code
    gone = app.http.delete("/v1/fingerprints/if", headers={"If-Match": tag})
    assert 412 == gone.status_code
    gone = app.http.delete("/v1/fingerprints/if", headers={"If-Match": changed.headers["ETag"]})
    assert 204 == gone.status_code
    missing = app.http.get("/v1/fingerprints/if")
    assert (404, "fingerprint_not_found") == (missing.status_code, missing.json()["code"])
    assert "push its checkpoint" in missing.json()["detail"]


@pytest.mark.parametrize(
    ("query", "status", "field"),
    [
        ({"base_model": "no\x01name"}, 422, "base_model[0]"),
        ({"base_relation": "theft"}, 422, "base_relation"),
        ({"license": "x" * 201}, 422, "license"),
        ({"license": "a\0b"}, 422, "license"),
        ({"published_at": "2026-01-02T03:04:05"}, 422, "published_at"),
        ({"file_bytes": -1}, 422, "file_bytes"),
        ({"base_model": [f"m{number}" for number in range(33)]}, 422, "base_model"),
    ],
)
def test_wrong_statements_name_their_field(
    app: AppHarness, query: dict[str, Any], status: int, field: str
) -> None:
    """And store nothing."""
    refused = put(app, "wrong", 1, **query)
    assert (status, field) == (refused.status_code, refused.json()["errors"][0]["field"])
    assert 404 == app.http.get("/v1/fingerprints/wrong").status_code


def test_a_body_that_is_no_fingerprint_says_why(app: AppHarness) -> None:
    """Of another scheme, damaged, too large, or of another type."""

    def answer(content: bytes, media_type: str = FINGERPRINT) -> tuple[int, str]:
        headers = {"Content-Type": media_type}
        sent = app.http.put("/v1/fingerprints/bad", content=content, headers=headers)
        return sent.status_code, sent.json()["detail"]

    whole = made_fingerprint(1).to_bytes()
    other = bytearray(whole)
    other[5] = 2
    assert answer(bytes(other))[0] == 422
    scheme = bytes(other[:-4]) + zlib.crc32(other[:-4]).to_bytes(4, "little")
    status, said = answer(scheme)
    assert status == 422
    assert "lines1" in said
    assert answer(whole[:-9])[0] == 422
    status, said = answer(bytes((4 << 20) + 1))
    assert status == 413
    assert "4,194,304" in said
    assert answer(whole, JSON)[0] == 415
    assert 404 == app.http.get("/v1/fingerprints/bad").status_code


def test_pages_end_and_go_on(app: AppHarness) -> None:
    """By name, with a prefix and by who stated them."""
    for number in range(3):
        put(app, f"page/{number}", number)
    query: dict[str, Any] = {"prefix": "page/", "limit": 2, "stated_by": "client"}
    first = app.http.get("/v1/fingerprints", params=query).json()
    query["cursor"] = first["next_cursor"]
    rest = app.http.get("/v1/fingerprints", params=query).json()
    names = [item["model"] for item in (*first["items"], *rest["items"])]
    assert (["page/0", "page/1", "page/2"], None) == (names, rest["next_cursor"])
    hubs = app.http.get("/v1/fingerprints", params={"stated_by": "hub"}).json()
    assert [] == hubs["items"]
    assert 422 == app.http.get("/v1/fingerprints", params={"cursor": "?"}).status_code


def test_another_tenants_is_not_there(app: AppHarness) -> None:
    """It is a 404 for all operations, and in no listing; the name is free."""
    put(app, "mine", 1)
    other = app.headers_of("other")
    path = "/v1/fingerprints/mine"
    assert 404 == app.http.get(path, headers=other).status_code
    assert 404 == app.http.delete(path, headers=other).status_code
    assert [] == app.http.get("/v1/fingerprints", headers=other).json()["items"]
    assert 201 == put(app, "mine", 2, other).status_code
    assert made_fingerprint(1).digest == app.http.get(path).json()["digest"]


def test_quotas_bound_number_and_bytes(app: AppHarness) -> None:
    """507 says which; what frees room is never refused."""
    headers = app.headers_of("poor")
    size = len(made_fingerprint(1).to_bytes())

    def limit(**quotas: int) -> None:
        with app.database.writing() as session:
            tenant = ensure_tenant(session, "poor")
            app.services[QuotaService].set(session, tenant.id, quotas)

    limit(fingerprints=1, fingerprint_bytes=size + 100)
    assert 201 == put(app, "one", 1, headers).status_code
    refused = put(app, "two", 2, headers)
    assert (507, "quota_exceeded") == (refused.status_code, refused.json()["code"])
    assert "1 fingerprints and may have 1" in refused.json()["detail"]
    limit(fingerprints=2)
    refused = put(app, "two", 2, headers)
    assert 507 == refused.status_code
    assert f"{size:,} bytes of the {size + 100:,}" in refused.json()["detail"]
    limit(fingerprint_bytes=1)
    assert 204 == app.http.delete("/v1/fingerprints/one", headers=headers).status_code


def test_changes_are_events(app: AppHarness, receiver: Receiver) -> None:
    """Of subscriptions to all spaces: a new content and a removal, and nothing else."""
    app.create_space("s")
    kinds = ("fingerprint.stored", "fingerprint.removed")
    app.webhooks.subscribe(f"{receiver.url}/all", *kinds)
    app.webhooks.subscribe(f"{receiver.url}/one", *kinds, model="told")
    app.webhooks.subscribe(f"{receiver.url}/space", *kinds, space="s")
    app.webhooks.subscribe(f"{receiver.url}/others", "support.stored")
    made = put(app, "told", 1).json()
    put(app, "told", 1, license="mit")
    put(app, "untold", 2)
    app.http.delete("/v1/fingerprints/told").raise_for_status()
    app.worker.run_all()

    def told(path: str) -> list[tuple[str, str]]:
        bodies = [json.loads(request.body) for request in receiver.at(path)]
        return [(body["type"], body["data"]["model"]) for body in bodies]

    of_one = [(kinds[0], "told"), (kinds[1], "told")]
    assert sorted([*of_one, (kinds[0], "untold")]) == sorted(told("/all"))
    assert sorted(of_one) == sorted(told("/one"))
    assert ([], []) == (told("/space"), told("/others"))
    [first] = [
        json.loads(request.body)["data"]
        for request in receiver.at("/one")
        if kinds[0].encode() in request.body
    ]
    assert {"model", "revision", "digest", "stated_by", "url", "event"} == first.keys()
    assert all(made[name] == first[name] for name in ("revision", "digest", "stated_by"))
    assert "/v1/fingerprints/told" == first["url"]


def test_many_are_put_in_one_request(app: AppHarness) -> None:
    """Each line as its own PUT would, with its own answer; a bad one spoils no other."""

    def line(model: str, seed: int, **more: Any) -> dict[str, Any]:
        data = base64.b64encode(made_fingerprint(seed).to_bytes()).decode()
        return {"model": model, "fingerprint": data, **more}

    put(app, "many/known", 5, license="mit")
    lines: list[Any] = [
        line("many/a", 1, **FACTS),
        line("many/known", 5, license="mit"),
        line("many/known", 5),
        {"model": "many/b", "fingerprint": "TUtGUA=="},
        {"model": "many/c", "fingerprint": "!"},
        line("many/d", 1, base_models=["a/../b"]),
        line("many/e", 1, file_bytes=True),
        line("many/f", 1, surplus=1),
        line("a/../b", 1),
        [],
        line("many/g", 2),
    ]
    body = b"\n".join(json.dumps(each).encode() for each in lines)
    headers = {"Content-Type": "application/jsonl"}
    sent = app.http.post("/v1/fingerprints", content=body, headers=headers)
    answers = [json.loads(each) for each in sent.content.splitlines()]
    done = [(each["model"], each["status"]) for each in answers if "error" not in each]
    assert done == [
        ("many/a", "created"),
        ("many/known", "unchanged"),
        ("many/known", "replaced"),
        ("many/g", "created"),
    ]
    refused = [(each["model"], each["error"]["code"]) for each in answers if "error" in each]
    assert refused == [
        ("many/b", "invalid_fingerprint"),
        ("many/c", "invalid_fingerprint"),
        ("many/d", "invalid_name"),
        ("many/e", "invalid_parameter"),
        ("many/f", "invalid_parameter"),
        (None, "invalid_name"),
        (None, "invalid_parameter"),
    ]
    stored = app.http.get("/v1/fingerprints/many/a").json()
    assert FACTS == {name: stored[name] for name in FACTS}
