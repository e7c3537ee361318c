"""Deliveries: every answer of a receiver has a defined outcome, which the log shows."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest
from sqlalchemy import func, select, update
from standardwebhooks import Webhook, WebhookVerificationError

from app.infra.db.database import Database
from app.infra.db.tables.jobs import JobRow
from app.infra.db.tables.webhooks import EventRow, SubscriptionRow
from app.infra.egress.allowlist import Allowlist
from app.infra.egress.client import Egress
from app.webhooks.delivery import JOB_KIND, RETRY_SCHEDULE
from app.webhooks.repositories import deliveries as store
from app.webhooks.sender import Sender
from tests.support.app.harness import AppHarness, open_keyed_app
from tests.support.backends import Backend
from tests.support.http_space import random_support
from tests.support.servers.webhook_receiver import Receiver, receiving


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    """The receiver of this file."""
    with receiving() as made:
        yield made


@pytest.fixture(scope="module")
def service(
    backend: Backend, receiver: Receiver, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[AppHarness]:
    """The service of this file, on each database."""
    receiver.requests.clear()
    with open_keyed_app(tmp_path_factory.mktemp("app"), backend) as made:
        yield made


@pytest.fixture
def app(service: AppHarness) -> AppHarness:
    """The service, where no attempt that an earlier test has left is due within minutes."""
    service.worker.make_due()
    service.worker.run_all()
    return service


def ping(app: AppHarness, made: dict[str, Any]) -> dict[str, Any]:
    """A new ping of a subscription, still pending."""
    answer = app.http.post(f"/v1/subscriptions/{made['id']}/ping")
    assert 202 == answer.status_code, answer.text
    delivery: dict[str, Any] = answer.json()
    assert ("pending", 0, "ping") == tuple(delivery[k] for k in ("state", "attempts", "type"))
    return delivery


def sent(app: AppHarness, made: dict[str, Any]) -> dict[str, Any]:
    """A ping, after its first attempt."""
    delivery = ping(app, made)
    app.worker.run_all()
    return next(d for d in app.webhooks.deliveries(made) if d["id"] == delivery["id"])


# --- one attempt ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "status", "detail"),
    [
        ("/ok", 204, "received"),
        ("/status/200", 200, "received"),
        ("/status/400", 400, "answered 400: sorry"),
        ("/status/404", 404, "answered 404: sorry"),
        ("/status/410", 410, "answered 410: sorry"),
        ("/status/500", 500, "answered 500: sorry"),
        ("/redirect", 307, "redirects to another path on the same host, which is not followed"),
        ("/redirect/https://a.example/T0/key?k=1", 307, "redirects to https://a.example, which"),
        ("/redirect/http://a:b/", None, "no answer: Invalid URL in location header"),
        ("/redirect/http://xn--0.example/", None, "no answer: Invalid URL in location header"),
        ("/retry-after/Mon, 20 Nov 99999999999999999999 19:12:08 GMT", 503, "answered 503"),
        ("/retry-after/Mon, 20 Nov 2017 19:12:08 GMT", 503, "answered 503"),
        ("/later", 503, "answered 503"),
        ("/hang", None, "no answer within 0.5 s"),
        ("/drip", None, "no answer within 0.5 s"),
        ("/close", None, "no answer: "),
        ("/half", 200, "its answer broke off"),
        ("/endless", 200, "received"),
    ],
)
def test_every_answer_means_something(
    receiver: Receiver, path: str, status: int | None, detail: str
) -> None:
    """The status counts, the sender does not wait for the body, and an attempt ends in time."""
    deadline = 0.5 if path in {"/hang", "/drip"} else 60  # a busy machine answers late
    sender = Sender(Egress(Allowlist.parse("127.0.0.0/8")), deadline=deadline)
    outcome = sender.send(f"{receiver.url}{path}", "msg_1", b"{}", ["whsec_AAAA"])
    assert status == outcome.status
    assert detail in outcome.detail
    assert (path in {"/ok", "/status/200", "/half", "/endless"}) == outcome.succeeded
    assert (path == "/status/410") == outcome.gone
    waits = {"/later": 3600, "/retry-after/Mon, 20 Nov 2017 19:12:08 GMT": 0}
    assert waits.get(path) == outcome.retry_after


def test_an_unreachable_receiver_is_an_outcome() -> None:
    """A refused connection, an unknown host and an inner address are outcomes as well."""
    sender = Sender(Egress(Allowlist.parse("127.0.0.1")), deadline=1)
    for url, detail in (
        ("http://127.0.0.1:9/", "no answer: "),
        ("http://unknown.invalid/", "'unknown.invalid' cannot be found"),
        ("http://127.0.0.2/", "not sent: 127.0.0.2 is not a public address"),
    ):
        outcome = sender.send(url, "msg_1", b"{}", ["whsec_AAAA"])
        assert (None, False) == (outcome.status, outcome.succeeded)
        assert detail in outcome.detail


# --- again and again ------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_failed_delivery_is_tried_again(app: AppHarness, receiver: Receiver) -> None:
    """It follows the schedule, under one id, with a new signature each time, until it ends."""
    made = app.webhooks.subscribe(f"{receiver.url}/status/500/again")
    first = sent(app, made)
    for attempt, pause in enumerate(RETRY_SCHEDULE, 1):
        [delivery] = app.webhooks.deliveries(made)
        assert ("pending", attempt) == (delivery["state"], delivery["attempts"])
        last = datetime.fromisoformat(delivery["log"][-1]["at"])
        wait = datetime.fromisoformat(delivery["next_attempt_at"]) - last
        assert pause <= wait <= pause * 1.1 + timedelta(seconds=5)
        app.worker.make_due()
        app.worker.run_all()
    [delivery] = app.webhooks.deliveries(made)
    assert ("failed", len(RETRY_SCHEDULE) + 1, None) == tuple(
        delivery[k] for k in ("state", "attempts", "next_attempt_at")
    )
    requests = receiver.at("/status/500/again")
    assert len(RETRY_SCHEDULE) + 1 == len(requests)
    assert {first["id"]} == {request.headers["webhook-id"] for request in requests}
    for request in requests:
        Webhook(made["secret"]).verify(request.body, request.headers)
    shown = app.webhooks.show(made)
    assert (True, len(requests), 500) == (
        shown["enabled"],
        shown["failures"],
        shown["last_failure"]["status"],
    )


def test_the_retries_are_jobs_that_wait(app: AppHarness, receiver: Receiver) -> None:
    """A failed attempt leaves a job that begins when the next one is due."""
    made = app.webhooks.subscribe(f"{receiver.url}/status/500/job")
    delivery = sent(app, made)
    due = datetime.fromisoformat(delivery["next_attempt_at"])
    query = select(JobRow.not_before).where(JobRow.kind == JOB_KIND, JobRow.state == "queued")
    with app.services[Database].reading() as session:
        moments = [moment for moment in session.scalars(query) if moment is not None]
    assert any(timedelta(0) <= moment - due <= timedelta(seconds=1) for moment in moments)


def test_a_receiver_that_asks_for_a_delay_gets_it(app: AppHarness, receiver: Receiver) -> None:
    """Neither this delivery nor another is sent before ``Retry-After`` is over; both show when."""
    made = app.webhooks.subscribe(f"{receiver.url}/later/please")
    delivery = sent(app, made)
    due = datetime.fromisoformat(delivery["next_attempt_at"])
    assert due - datetime.now(UTC) > timedelta(seconds=3500)
    second = sent(app, made)
    assert ("pending", 0) == tuple(second[k] for k in ("state", "attempts"))
    paused = app.webhooks.show(made)["paused_until"]
    assert paused == second["next_attempt_at"]
    assert timedelta(seconds=3500) < datetime.fromisoformat(paused) - datetime.now(UTC)
    assert 1 == len(receiver.at("/later/please"))


def test_success_ends_it(app: AppHarness, receiver: Receiver) -> None:
    """A receiver that recovers gets the pending deliveries, and its failures are reset."""
    made = app.webhooks.subscribe(f"{receiver.url}/status/503/back")
    sent(app, made)
    path = f"/v1/subscriptions/{made['id']}"
    changed = app.http.patch(path, json={"url": f"{receiver.url}/ok/back"})
    assert 200 == changed.status_code
    app.worker.make_due()
    app.worker.run_all()
    [delivery] = app.webhooks.deliveries(made)
    assert ("succeeded", [503, 204]) == (
        delivery["state"],
        [attempt["status"] for attempt in delivery["log"]],
    )
    shown = app.webhooks.show(made)
    assert (0, None) == (shown["failures"], shown["failing_since"])
    assert shown["last_success_at"] is not None


def test_gone_disables(app: AppHarness, receiver: Receiver) -> None:
    """A 410 ends the delivery and disables the subscription, with the reason shown."""
    made = app.webhooks.subscribe(f"{receiver.url}/status/410/gone")
    assert "failed" == sent(app, made)["state"]
    shown = app.webhooks.show(made)
    assert not shown["enabled"]
    assert "410" in shown["disabled_reason"]
    refused = app.http.post(f"/v1/subscriptions/{made['id']}/ping")
    assert (409, "subscription_disabled") == (refused.status_code, refused.json()["code"])
    [delivery] = app.webhooks.deliveries(made)
    replay = f"/v1/subscriptions/{made['id']}/deliveries/{delivery['id']}/replay"
    assert 409 == app.http.post(replay).status_code
    again = app.http.patch(f"/v1/subscriptions/{made['id']}", json={"enabled": True})
    assert (True, None, 0) == tuple(
        again.json()[k] for k in ("enabled", "disabled_reason", "failures")
    )


def test_failing_for_days_disables(app: AppHarness, receiver: Receiver) -> None:
    """After five days of failures the subscription is disabled, with the reason shown."""
    made = app.webhooks.subscribe(f"{receiver.url}/status/500/days")
    sent(app, made)
    with app.services[Database].writing() as session:
        past = datetime.now(UTC) - timedelta(days=5)
        session.execute(update(SubscriptionRow).values(failing_since=past))
    app.worker.make_due()
    app.worker.run_all()
    shown = app.webhooks.show(made)
    assert not shown["enabled"]
    assert "every attempt since" in shown["disabled_reason"]
    assert "answered 500: sorry" in shown["disabled_reason"]


def test_replays(app: AppHarness, receiver: Receiver) -> None:
    """A succeeded or failed delivery is sent again, unchanged, under the same id."""
    made = app.webhooks.subscribe(f"{receiver.url}/ok/replay")
    delivery = sent(app, made)
    path = f"/v1/subscriptions/{made['id']}/deliveries/{delivery['id']}"
    for _ in range(2):  # two replays before it is sent count as one
        again = app.http.post(f"{path}/replay")
        assert (202, "pending") == (again.status_code, again.json()["state"])
    app.worker.run_all()
    first, second = receiver.at("/ok/replay")
    assert (first.body, first.headers["webhook-id"]) == (second.body, second.headers["webhook-id"])
    shown = app.http.get(path).json()
    assert ("succeeded", 1, 2) == (shown["state"], shown["attempts"], len(shown["log"]))


def test_rotation(app: AppHarness, receiver: Receiver) -> None:
    """For a while both secrets sign, then the new one alone."""
    made = app.webhooks.subscribe(f"{receiver.url}/ok/rotated")
    path = f"/v1/subscriptions/{made['id']}/rotate-secret"
    rotated = app.http.post(path, params={"overlap_seconds": 3600}).json()
    assert rotated["secret"] != made["secret"]
    until = datetime.fromisoformat(rotated["previous_secret_until"])
    assert timedelta(0) < until - datetime.now(UTC) <= timedelta(hours=1)
    sent(app, made)
    request = receiver.at("/ok/rotated")[-1]
    for secret in (made["secret"], rotated["secret"]):
        Webhook(secret).verify(request.body, request.headers)
    assert 2 == len(request.headers["webhook-signature"].split(" "))
    # A second rotation expires none of them early.
    third = app.http.post(path, params={"overlap_seconds": 60}).json()
    assert rotated["previous_secret_until"] == third["previous_secret_until"]
    sent(app, made)
    request = receiver.at("/ok/rotated")[-1]
    for secret in (made["secret"], rotated["secret"], third["secret"]):
        Webhook(secret).verify(request.body, request.headers)
    last = app.http.post(path, params={"overlap_seconds": 0}).json()
    assert last["previous_secret_until"] is None
    sent(app, made)
    request = receiver.at("/ok/rotated")[-1]
    Webhook(last["secret"]).verify(request.body, request.headers)
    for secret in (made["secret"], rotated["secret"], third["secret"]):
        with pytest.raises(WebhookVerificationError):
            Webhook(secret).verify(request.body, request.headers)


def test_what_a_dead_worker_had_taken_is_sent(app: AppHarness, receiver: Receiver) -> None:
    """While one worker has reserved a delivery no other sends it; then it is due again."""
    made = app.webhooks.subscribe(f"{receiver.url}/ok/taken")
    ping(app, made)
    now = datetime.now(UTC)
    with app.services[Database].writing() as session:
        due = store.find_due(session, now, limits=store.ConcurrencyLimits(99, 99, 99))
        [delivery] = [each for each in due if each.subscription_id == made["id"]]
        assert store.reserve(session, delivery, now + timedelta(hours=1))
        assert not store.reserve(session, delivery, now + timedelta(hours=1))
    app.worker.run_all()
    assert [] == receiver.at("/ok/taken")
    app.worker.make_due()
    app.worker.tick()
    assert 1 == len(receiver.at("/ok/taken"))


def test_each_tenant_and_subscription_gets_its_share(app: AppHarness, receiver: Receiver) -> None:
    """The share does not depend on how much is due for the others."""
    other = app.headers_of("crowded")
    mine = app.webhooks.subscribe(f"{receiver.url}/ok/mine")
    body = {"url": f"{receiver.url}/ok/theirs", "events": ["support.stored"]}
    theirs = [app.http.post("/v1/subscriptions", json=body, headers=other).json() for _ in range(4)]
    for made in theirs * 3:
        path = f"/v1/subscriptions/{made['id']}/ping"
        assert 202 == app.http.post(path, headers=other).status_code
    for _ in range(3):
        ping(app, mine)
    limits = store.ConcurrencyLimits(total=20, per_tenant=6, per_subscription=2)
    with app.services[Database].reading() as session:
        due = store.find_due(session, datetime.now(UTC), limits=limits)
        more = store.find_due(session, datetime.now(UTC), limits=limits, in_flight=due)
        few = store.find_due(session, datetime.now(UTC), limits=store.ConcurrencyLimits(5, 6, 2))
    count = Counter(delivery.subscription_id for delivery in due)
    assert (2, 6) == (count[mine["id"]], sum(count[made["id"]] for made in theirs))
    assert max(count.values()) == 2
    assert [] == more
    assert 5 == len(few)
    app.worker.run_all()
    assert (3, 12) == (len(receiver.at("/ok/mine")), len(receiver.at("/ok/theirs")))


# --- many -----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_slow_receiver_delays_only_itself(app: AppHarness) -> None:
    """A hanging receiver has two attempts at a time; the others get theirs, and no job waits.

    When it answers, the remaining deliveries follow.
    """
    with receiving() as receiver:
        slow = app.webhooks.subscribe(f"{receiver.url}/held/204/slow")
        quick = app.webhooks.subscribe(f"{receiver.url}/ok/quick")
        for _ in range(6):
            ping(app, slow)
        assert [JOB_KIND] == app.worker.run_all(wait=False)
        for _ in range(3):
            ping(app, quick)
        assert [JOB_KIND] == app.worker.run_all(wait=False)
        assert [] == app.worker.tick(wait=False)
        arrived, until = (0, 0), time.monotonic() + 60
        while arrived < (3, 2) and time.monotonic() < until:
            time.sleep(0.02)
            arrived = len(receiver.at("/ok/quick")), len(receiver.at("/held/204/slow"))
        assert (3, 2) == arrived
        receiver.released.set()
        assert [] == app.worker.run_all()
        assert 6 == len(receiver.at("/held/204/slow"))
        for made in (slow, quick):
            assert {"succeeded"} == {
                delivery["state"] for delivery in app.webhooks.deliveries(made)
            }


def test_subscriptions_are_their_tenants(app: AppHarness, receiver: Receiver) -> None:
    """Another tenant's subscription gets none of this one's events, nor is it found by its id."""
    other = app.headers_of("another")
    body = {"url": f"{receiver.url}/ok/another", "events": ["support.stored"]}
    theirs = app.http.post("/v1/subscriptions", json=body, headers=other).json()
    space = app.create_space("tenants")
    app.put_support(space, "a", random_support(np.random.default_rng(1), 10_000, 100))
    app.worker.run_all()
    assert [] == receiver.at("/ok/another")
    path = f"/v1/subscriptions/{theirs['id']}"
    for method, tail in (
        ("GET", ""),
        ("PATCH", ""),
        ("DELETE", ""),
        ("POST", "/ping"),
        ("POST", "/rotate-secret"),
        ("GET", "/deliveries"),
        ("GET", f"/deliveries/{theirs['id']}"),
        ("POST", f"/deliveries/{theirs['id']}/replay"),
    ):
        answer = app.http.request(method, path + tail, json={} if method == "PATCH" else None)
        assert (404, "subscription_not_found") == (answer.status_code, answer.json()["code"])


def test_what_ended_long_ago_is_forgotten(app: AppHarness, receiver: Receiver) -> None:
    """Deliveries and their events are deleted after the configured days."""
    made = app.webhooks.subscribe(f"{receiver.url}/ok/old")
    space = app.create_space("old")
    app.put_support(space, "a", random_support(np.random.default_rng(1), 10_000, 100))
    app.worker.run_all()
    assert 1 == len(app.webhooks.deliveries(made))
    events = select(func.count()).select_from(EventRow)
    with app.services[Database].reading() as session:
        assert session.scalar(events)
    app.worker.age_events()
    app.worker.tick()
    assert [] == app.webhooks.deliveries(made)
    with app.services[Database].reading() as session:
        assert 0 == session.scalar(events)
