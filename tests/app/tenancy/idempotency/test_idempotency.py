"""Idempotency keys: a request that is sent again has no second effect, and the same answer."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from cryptography.fernet import Fernet
from sqlalchemy import func, select, update
from starlette.testclient import TestClient

from app.infra.db.database import Database
from app.infra.db.secret_rotation import renew_secrets
from app.infra.db.tables.tenants import IdempotencyKeyRow
from app.infra.storage.encryption import Secrets
from app.infra.storage.encryption_keys import parse_keys
from app.tenancy.idempotency.records import Answer
from app.tenancy.idempotency.service import IdempotencyService
from modelkin import Support
from tests.support.app.harness import KEY, AppHarness, open_keyed_app
from tests.support.backends import Backend

HOOK = {"url": "http://127.0.0.1:9/events", "events": ["support.stored"]}
SOURCE = {"kind": "huggingface", "space": "s", "secret": "hook-secret-of-a-test"}
OTHER_KEY = Fernet.generate_key().decode()
ANSWER = Answer(202, None, b"{}")
POSTS: dict[str, tuple[str, Any]] = {
    "create_subscription": ("/v1/subscriptions", HOOK),
    "create_source": ("/v1/sources", SOURCE),
    "create_job": ("/v1/spaces/s/jobs", {"kind": "rebuild_buckets"}),
    "create_clustering": ("/v1/spaces/s/clusterings", {"algorithm": "leiden"}),
}


@pytest.fixture(scope="module")
def app(backend: Backend, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AppHarness]:
    """The service of this file, with a space that has a model."""
    with open_keyed_app(tmp_path_factory.mktemp("app"), backend) as made:
        made.put_support(made.create_space("s"), "a", Support.from_indices([1, 2, 3], 10_000))
        yield made


def key() -> dict[str, str]:
    return {"Idempotency-Key": uuid4().hex}


def subscribe(http: TestClient, headers: dict[str, str]) -> dict[str, Any]:
    answer = http.post("/v1/subscriptions", json=HOOK, headers=headers)
    assert 201 == answer.status_code, answer.text
    made: dict[str, Any] = answer.json()
    return made


def kept(app: AppHarness) -> int:
    with app.services[Database].reading() as session:
        return session.scalars(select(func.count()).select_from(IdempotencyKeyRow)).one()


@pytest.mark.parametrize(("path", "body"), POSTS.values(), ids=POSTS)
def test_a_request_that_is_sent_again_is_answered_as_before(
    app: AppHarness, path: str, body: Any
) -> None:
    """With the same status, content and location, and nothing more is made."""
    headers = key()
    first = app.http.post(path, json=body, headers=headers)
    assert first.status_code in (201, 202), first.text
    assert "Idempotency-Replayed" not in first.headers
    listing = "/v1/jobs" if "spaces" in path else path
    before = app.http.get(listing, params={"limit": 1000}).json()
    again = app.http.post(path, json=body, headers=headers)
    assert (first.status_code, first.content, first.headers["Location"], "true") == (
        again.status_code,
        again.content,
        again.headers["Location"],
        again.headers["Idempotency-Replayed"],
    )
    assert before == app.http.get(listing, params={"limit": 1000}).json()


def test_a_job_that_has_ended_is_still_the_answer(app: AppHarness) -> None:
    """Without a key the same request would begin another one."""
    path, body = POSTS["create_job"]
    headers = key()
    first = app.http.post(path, json=body, headers=headers).json()
    assert 202 == app.http.post(f"/v1/jobs/{first['id']}/cancel").status_code
    assert first["id"] == app.http.post(path, json=body, headers=headers).json()["id"]
    assert first["id"] != app.http.post(path, json=body).json()["id"]


def test_a_lost_answer_loses_no_secret(app: AppHarness) -> None:
    """Sent again, a rotation answers the secret that it made; the database has it encrypted."""
    made = subscribe(app.http, key())
    path, headers = f"/v1/subscriptions/{made['id']}/rotate-secret", key()
    secret = app.http.post(path, headers=headers).json()["secret"]
    assert secret != made["secret"]
    assert secret == app.http.post(path, headers=headers).json()["secret"]
    assert secret != app.http.post(path).json()["secret"]
    with app.services[Database].reading() as session:
        rows = session.scalars(
            select(IdempotencyKeyRow).where(IdempotencyKeyRow.key == headers["Idempotency-Key"])
        )
        row = rows.one()
        assert row.answer is None
        assert row.secret_answer is not None
        assert secret.encode() not in row.secret_answer
        assert secret in app.services[Secrets].decrypt(row.secret_answer)


def test_a_key_is_of_one_request(app: AppHarness) -> None:
    """Another body, query or path with it is a 422 that names the header."""
    headers = key()
    made = subscribe(app.http, headers)
    rotate = f"/v1/subscriptions/{made['id']}/rotate-secret"
    others: list[tuple[str, Any]] = [
        ("/v1/subscriptions", {**HOOK, "tag": "red"}),
        ("/v1/sources", SOURCE),
        (rotate, None),
    ]
    for path, body in others:
        answer = app.http.post(path, json=body, headers=headers)
        assert (422, "invalid_parameter") == (answer.status_code, answer.json()["code"])
        assert "Idempotency-Key" == answer.json()["errors"][0]["field"]
    again = key()
    assert 200 == app.http.post(rotate, headers=again).status_code
    answer = app.http.post(rotate, headers=again, params={"overlap_seconds": 5})
    assert 422 == answer.status_code


@pytest.mark.parametrize("given", [b"", b"x" * 256, b"two words", b"\xe9"])
def test_a_key_that_cannot_be_one_is_named(app: AppHarness, given: bytes) -> None:
    """It is a short text of printable ASCII without spaces."""
    answer = app.http.post("/v1/subscriptions", json=HOOK, headers={b"Idempotency-Key": given})
    assert (422, "invalid_parameter") == (answer.status_code, answer.json()["code"])


def test_keys_are_of_their_tenant(app: AppHarness) -> None:
    """Another tenant's request with the same key is its own."""
    headers = key()
    made = subscribe(app.http, headers)
    other = subscribe(app.http, {**headers, **app.headers_of("another")})
    assert made["id"] != other["id"]
    assert made["secret"] != other["secret"]


def test_a_refused_request_may_be_sent_again(app: AppHarness) -> None:
    """Only what took effect has its answer kept."""
    headers, name = key(), f"later-{uuid4().hex[:8]}"
    path, body = f"/v1/spaces/{name}/jobs", {"kind": "rebuild_buckets"}
    before = kept(app)
    assert 404 == app.http.post(path, json=body, headers=headers).status_code
    assert before == kept(app)
    app.create_space(name)
    assert 202 == app.http.post(path, json=body, headers=headers).status_code
    assert before + 1 == kept(app)


def test_of_twins_one_is_carried_out(app: AppHarness) -> None:
    """Requests that come at once with one key make one subscription, and all get its answer."""
    headers, ready = key(), threading.Barrier(6)
    before = len(app.http.get("/v1/subscriptions", params={"limit": 1000}).json()["items"])

    def send(_: int) -> dict[str, Any]:
        ready.wait()
        return subscribe(app.http, headers)

    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(send, range(6)))
    assert all(answers[0] == answer for answer in answers)
    after = len(app.http.get("/v1/subscriptions", params={"limit": 1000}).json()["items"])
    assert before + 1 == after


def test_a_key_is_free_again_after_a_day(app: AppHarness) -> None:
    """Whether or not the clean-up has deleted its answer."""
    headers = key()
    made = subscribe(app.http, headers)
    age(app, headers, timedelta(hours=23, minutes=59))
    assert made == subscribe(app.http, headers)
    age(app, headers, timedelta(minutes=1))
    assert made["id"] != subscribe(app.http, headers)["id"]


def test_the_clean_up_deletes_old_answers_and_too_many(app: AppHarness) -> None:
    """Those of more than a day, and of a tenant the oldest beyond a bound."""
    old, *new = (key() for _ in range(5))
    for headers in (old, *new):
        subscribe(app.http, headers)
    age(app, old, timedelta(hours=24))
    app.services[IdempotencyService].prune(threading.Event())
    assert old["Idempotency-Key"] not in names(app)
    few = IdempotencyService(app.services[Database], app.services[Secrets], max_kept=2)
    few.prune(threading.Event())
    assert {each["Idempotency-Key"] for each in new[-2:]} <= names(app)
    assert new[0]["Idempotency-Key"] not in names(app)


def test_a_new_key_of_secrets_covers_answers(app: AppHarness) -> None:
    """The rotation of the encryption key reaches answers that have secrets."""
    headers = key()
    made = subscribe(app.http, headers)
    both = Secrets(parse_keys(f"{OTHER_KEY},{KEY}"), None)
    with app.services[Database].writing() as session:
        renew_secrets(session, both.renew)
    with app.services[Database].reading() as session:
        alone = Secrets(parse_keys(OTHER_KEY), None)
        found = select(IdempotencyKeyRow.secret_answer)
        stored = found.where(IdempotencyKeyRow.key == headers["Idempotency-Key"])
        assert made["secret"] in alone.decrypt(session.scalars(stored).one() or b"")
    with app.services[Database].writing() as session:
        renew_secrets(session, lambda held: app.services[Secrets].encrypt(alone.decrypt(held)))


def test_who_reads_the_database_cannot_try_out_what_was_sent(app: AppHarness) -> None:
    """A hub's secret may be short. What is stored of a body is a hash under the key of secrets; the
    request is known again where a key was set, or exchanged, in between.
    """
    digest, name = hashlib.sha256(b"short").digest(), uuid4().hex
    stored: list[bytes] = []
    for keys in ("", KEY, f"{OTHER_KEY},{KEY}", OTHER_KEY):
        secrets = Secrets(parse_keys(keys) if keys else (), None)
        service = IdempotencyService(app.services[Database], secrets)
        with app.services[Database].writing() as session:
            assert service.begin(session, app.tenant, f"{name}{keys}", digest) is None
            service.keep(session, app.tenant, f"{name}{keys}", ANSWER, is_secret=False)
            mine = IdempotencyKeyRow.key == f"{name}{keys}"
            stored += session.scalars(select(IdempotencyKeyRow.fingerprint).where(mine))
    by_none, by_old, by_new, by_new_alone = stored
    assert (digest, by_new_alone) == (by_none, by_new)
    assert 3 == len({digest, by_old, by_new})
    both = IdempotencyService(
        app.services[Database], Secrets(parse_keys(f"{OTHER_KEY},{KEY}"), None)
    )
    with app.services[Database].writing() as session:
        for keys in ("", KEY, OTHER_KEY):
            assert ANSWER == both.begin(session, app.tenant, f"{name}{keys}", digest)
    assert secrets.hashes(digest) != secrets.hashes(digest[::-1])


def test_a_long_answer_is_not_kept(app: AppHarness) -> None:
    """Its key is free again: what has one is found by its parameters."""
    service, name = app.services[IdempotencyService], uuid4().hex
    for size in (1 << 16, (1 << 16) + 1):
        with app.services[Database].writing() as session:
            assert service.begin(session, app.tenant, name + str(size), b"f") is None
            answer = Answer(202, None, b"x" * size)
            service.keep(session, app.tenant, name + str(size), answer, is_secret=False)
    assert {name + str(1 << 16)} == {each for each in names(app) if each.startswith(name)}


def age(app: AppHarness, headers: dict[str, str], by: timedelta) -> None:
    """Make an answer older."""
    with app.services[Database].writing() as session:
        mine = IdempotencyKeyRow.key == headers["Idempotency-Key"]
        made = session.scalars(select(IdempotencyKeyRow.created_at).where(mine)).one()
        session.execute(update(IdempotencyKeyRow).where(mine).values(created_at=made - by))


def names(app: AppHarness) -> set[str]:
    with app.services[Database].reading() as session:
        return set(session.scalars(select(IdempotencyKeyRow.key)))
