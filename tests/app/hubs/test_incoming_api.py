"""/v1/hooks: each delivery counts once, none is lost, and without the secret all are refused."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from app.hubs.incoming.service import PRUNE
from app.hubs.records import Place
from app.hubs.repositories import source_models
from app.infra.db.tables.hubs import HubEventRow
from app.infra.db.tables.jobs import JobRow
from app.jobs.service import JobService
from app.tenancy.auth.service import KeyService
from tests.support.app.harness import AppHarness, open_app
from tests.support.app.hubs import SECRET
from tests.support.app.space import silent
from tests.support.backends import SQLITE
from tests.support.hub_payloads import hf_headers, hf_payload, mlflow_payload, signed

VERSION = mlflow_payload("model_version.created", {"name": "m", "version": "1"})


def deliveries(service: AppHarness, source: dict[str, Any]) -> list[dict[str, Any]]:
    """What is shown of a source's deliveries, newest first, read page by page."""
    items, cursor = [], None
    while True:
        query = {"limit": 60} | ({"cursor": cursor} if cursor else {})
        path = f"/v1/sources/{source['id']}/deliveries"
        page = service.http.get(path, params=query).json()
        items += page["items"]
        if (cursor := page["next_cursor"]) is None:
            return items


@pytest.mark.slow
def test_a_delivery_becomes_a_job(service: AppHarness) -> None:
    """It is answered 202 with the job, recorded, and the source says when it came."""
    source = service.hubs.create()
    receipt = service.hubs.push(source, "org/a", sha="s1")
    (job,) = service.hubs.jobs(source)
    assert ("enqueued", job["id"], False) == (
        receipt["outcome"],
        receipt["job"],
        receipt["duplicate"],
    )
    expected = {"source": source["id"], "model": "org/a", "revision": "s1", "moved_from": None}
    assert ("ingest", "queued", expected) == (job["kind"], job["state"], job["parameters"])
    (shown,) = deliveries(service, source)
    assert ("repo.content.update", "org/a", "s1", job["id"], None) == (
        *(shown[name] for name in ("event", "model", "revision", "job", "reason")),
    )
    assert shown["received_at"] == service.hubs.show(source)["last_delivery_at"]


def test_a_signed_delivery_becomes_a_job(service: AppHarness) -> None:
    """MLflow's signature is taken, once; the same delivery again is a duplicate."""
    source = service.hubs.create(kind="mlflow")
    headers, body = signed(SECRET, VERSION)
    first = service.http.post(source["hook"], content=body, headers=headers)
    again = service.http.post(source["hook"], content=body, headers=headers)
    assert (202, 200) == (first.status_code, again.status_code)
    assert {**first.json(), "duplicate": True} == again.json()
    assert [{"m"}] == [{job["parameters"]["model"]} for job in service.hubs.jobs(source)]


def test_forged_and_stale_deliveries_tell_nothing(service: AppHarness) -> None:
    """A wrong secret, a changed body, an old signature and an unknown hook get the same 401.

    The owner of the source can see which of them it was.
    """
    hub, registry = service.hubs.create(), service.hubs.create(kind="mlflow")
    headers, body = signed(SECRET, VERSION)
    stale, _ = signed(SECRET, VERSION, timestamp="1753950452")
    attempts = [
        (hub["hook"], {"x-webhook-secret": "guess"}, body),
        (hub["hook"], {}, body),
        (registry["hook"], headers, body + b" "),
        (registry["hook"], stale, body),
        (registry["hook"], hf_headers(SECRET), body),
        ("/v1/hooks/" + "0" * 36, hf_headers(SECRET), body),
        ("/v1/hooks/x", hf_headers(SECRET), b"\xff"),
    ]
    answers = [service.http.post(url, content=b, headers=h) for url, h, b in attempts]
    assert {401} == {answer.status_code for answer in answers}
    bodies = {str({**answer.json(), "request_id": ""}) for answer in answers}
    assert 1 == len(bodies)
    assert "not that of the source" in service.hubs.show(hub)["last_refusal"]["detail"]
    assert "not made of this body" in service.hubs.show(registry)["last_refusal"]["detail"]
    for source in (hub, registry):
        assert ([], []) == (deliveries(service, source), service.hubs.jobs(source))


def test_a_stale_delivery_is_told_to_the_owner(service: AppHarness) -> None:
    """Who wonders why nothing comes reads of the clock."""
    registry = service.hubs.create(kind="mlflow")
    headers, body = signed(SECRET, VERSION, timestamp="1753950452")
    assert 401 == service.http.post(registry["hook"], content=body, headers=headers).status_code
    assert "300 s are tolerated" in service.hubs.show(registry)["last_refusal"]["detail"]


def test_a_delivery_that_comes_many_times_at_once_is_one(service: AppHarness) -> None:
    """If several requests bring it at the same moment, only one is answered as new."""
    source = service.hubs.create()
    payload = hf_payload("org/a")
    with ThreadPoolExecutor(8) as pool:
        send = lambda _: service.hubs.send(source, payload, "msg_1").status_code  # noqa: E731
        codes = list(pool.map(send, range(16)))
    assert ([200] * 15 + [202], 1, 1) == (
        sorted(codes),
        len(deliveries(service, source)),
        len(service.hubs.jobs(source)),
    )


@pytest.mark.slow
def test_none_of_many_is_lost(service: AppHarness) -> None:
    """What was answered is recorded, and its job is there: a model each."""
    source = service.hubs.create()
    with ThreadPoolExecutor(8) as pool:
        send = lambda i: service.hubs.push(source, f"org/m{i}")["job"]  # noqa: E731
        job_ids = list(pool.map(send, range(100)))
    assert sorted(job_ids) == sorted(job["id"] for job in service.hubs.jobs(source))
    shown = deliveries(service, source)
    assert {f"org/m{i}" for i in range(100)} == {delivery["model"] for delivery in shown}
    assert 100 == len({delivery["delivery_id"] for delivery in shown})


def test_news_of_one_model_wait_for_one_look(service: AppHarness) -> None:
    """While a sync waits no second one is made; once it runs, it may have read the hub before."""
    source = service.hubs.create()
    first = service.hubs.push(source, "org/a", sha="s1")["job"]
    assert first == service.hubs.push(source, "org/a", sha="s2")["job"]
    running(service, first)
    second = service.hubs.push(source, "org/a", sha="s3")["job"]
    assert second != first
    assert second == service.hubs.push(source, "org/a", sha="s1")["job"]
    running(service, second)
    third = service.hubs.push(source, "org/a")["job"]
    assert [first, second, third] == [job["id"] for job in service.hubs.jobs(source)]


def running(service: AppHarness, job_id: str) -> None:
    """Set the state of a job to running, as if a worker carried it out."""
    with service.database.writing() as session:
        session.execute(update(JobRow).where(JobRow.id == job_id).values(state="running"))


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (hf_payload("org/a", refs=["refs/pr/3"]), "main did not change, but refs/pr/3"),
        (hf_payload("org/a", scope="discussion"), "does not concern a model's files"),
        (hf_payload("org/a", kind="dataset"), "a dataset, not a model"),
        (hf_payload("me/a"), "not one of the source's owners"),
        (hf_payload("org/a", sha="s"), "does not carry the tag 'wanted'"),
        (hf_payload("org/a(1)"), "no model can have its name here"),
        (hf_payload("org/e\u0301"), "normal form C"),
        ({"hello": "world"}, "names no repository"),
    ],
)
def test_what_means_nothing_is_ignored(service: AppHarness, payload: Any, reason: str) -> None:
    """It is accepted and recorded with the reason, and no sync is enqueued."""
    source = service.hubs.create(filters={"owners": ["org"], "tags": ["wanted"]})
    answer = service.hubs.send(source, payload)
    assert (202, "ignored", None) == (
        answer.status_code,
        answer.json()["outcome"],
        answer.json()["job"],
    )
    (shown,) = deliveries(service, source)
    assert reason in shown["reason"]
    assert [] == service.hubs.jobs(source)


def test_what_is_here_is_followed_further(service: AppHarness) -> None:
    """A model that lost its tag on the hub is synced if it was stored while it had the tag."""
    source = service.hubs.create(filters={"tags": ["wanted"]})
    with service.database.writing() as session:
        sync = source_models.start_sync(session, source["id"], "org/a", "job") or 0
        place = Place("org/a", None, "kin-delta-0")
        opened = service.hubs.source(source["id"]).updated_at
        source_models.finish_sync(
            session, source["id"], "org/a", sync, opened=opened, revision="s0", places={None: place}
        )
    assert "enqueued" == service.hubs.push(source, "org/a", sha="s1")["outcome"]
    assert "ignored" == service.hubs.push(source, "org/b", sha="s1")["outcome"]


def test_a_move_names_both(service: AppHarness) -> None:
    """The sync job has the new and the old name if either passes the filters."""
    source = service.hubs.create(filters={"repos": ["org/a"]})
    moved = hf_payload("org/a", scope="repo", action="move", movedTo={"name": "new/a"})
    service.hubs.send(source, moved)
    (job,) = service.hubs.jobs(source)
    assert ("new/a", "org/a") == (job["parameters"]["model"], job["parameters"]["moved_from"])


def test_without_a_url_deliveries_are_recorded(service: AppHarness) -> None:
    """There is no hub to call, so there is no job; the events can still be read."""
    source = service.hubs.create(url=None)
    assert "recorded" == service.hubs.push(source, "org/a", sha="s1")["outcome"]
    (shown,) = deliveries(service, source)
    assert ("org/a", "s1", None) == (shown["model"], shown["revision"], shown["job"])
    assert [] == service.hubs.jobs(source)


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"7", b'"x"', b"\xff", b'{"a": NaN}', b"[" * 5000]
)
def test_what_is_no_payload_is_refused(service: AppHarness, body: bytes) -> None:
    """A body that is not a JSON object is a 422 if the secret is right; nothing is recorded."""
    source = service.hubs.create()
    answer = service.http.post(source["hook"], content=body, headers=hf_headers(SECRET))
    assert (422, "invalid_parameter") == (answer.status_code, answer.json()["code"])
    assert [] == deliveries(service, source)


def test_a_body_has_a_limit(service: AppHarness) -> None:
    """Beyond 1 MiB it is a 413, and not read further."""
    source = service.hubs.create()
    large = b'{"a": "' + b"x" * (1 << 20) + b'"}'
    answer = service.http.post(source["hook"], content=large, headers=hf_headers(SECRET))
    assert (413, "payload_too_large") == (answer.status_code, answer.json()["code"])
    chunked = service.http.post(
        source["hook"], content=iter([large[:9], large[9:]]), headers=hf_headers(SECRET)
    )
    assert 413 == chunked.status_code


def test_old_deliveries_are_forgotten(service: AppHarness) -> None:
    """Those of the last days stay; one that comes again after that is new."""
    source = service.hubs.create()
    for model, delivery_id in (("org/a", "msg_1"), ("org/b", "msg_2")):
        service.hubs.send(source, hf_payload(model), delivery_id)
    old = datetime.now(UTC) - timedelta(days=31)
    with service.database.writing() as session:
        changed = update(HubEventRow).where(HubEventRow.event_id == "msg_1")
        session.execute(changed.values(received_at=old))
    periodic = {known.kind: known for known in service.services[JobService].periodic}[PRUNE]
    with service.database.reading() as session:
        assert periodic.wanted(session)
    job: Any = None
    pruned: Any = service.services[JobService].handler(PRUNE)(job, silent)
    assert pruned["pruned"] >= 1
    assert ["msg_2"] == [delivery["delivery_id"] for delivery in deliveries(service, source)]
    assert 202 == service.hubs.send(source, hf_payload("org/a"), "msg_1").status_code
    with service.database.reading() as session:
        assert not periodic.wanted(session)


@pytest.mark.slow
def test_deliveries_need_no_key_and_are_counted_by_address(tmp_path: Path) -> None:
    """Hubs need no API key where clients do, but the limits of their address apply."""
    with open_app(tmp_path, SQLITE, auth="required", rate_limit=20) as service:
        with service.database.writing() as session:
            key = service.services[KeyService].create(session, "default", scopes={"read", "write"})
        service.http.headers["Authorization"] = f"Bearer {key}"
        source = service.hubs.create()
        del service.http.headers["Authorization"]
        codes = [service.hubs.send(source, hf_payload(f"org/{i}")).status_code for i in range(25)]
        assert ([202] * 20, [429] * 5) == (codes[:20], codes[20:])
        assert 401 == service.http.get(f"/v1/sources/{source['id']}").status_code
