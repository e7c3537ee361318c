"""Deliveries under faults: changed URLs, lost keys, bugs, backlogs and dead workers."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from sqlalchemy import insert, select, update

from app.infra.db.database import Database, Reader
from app.infra.db.ids import new_id
from app.infra.db.tables.webhooks import EventRow, SubscriptionRow, WebhookDeliveryRow
from app.infra.storage.encryption import Secrets
from app.webhooks.in_flight import THREAD
from app.webhooks.repositories import deliveries as store
from app.webhooks.repositories import events as event_repository
from app.webhooks.sender import Sender
from tests.support.app.harness import AppHarness, open_keyed_app
from tests.support.app.worker import PAST
from tests.support.backends import SQLITE, Backend
from tests.support.declared_problems import checked
from tests.support.http_space import random_support
from tests.support.servers.server_process import Server
from tests.support.servers.waiting import wait_for
from tests.support.servers.webhook_receiver import Receiver, receiving

LIMITS = store.ConcurrencyLimits(total=32, per_tenant=8, per_subscription=2)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A receiver of the test's own."""
    with receiving() as made:
        yield made


@pytest.fixture(scope="module")
def app(backend: Backend, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AppHarness]:
    """The service of this file, on each database."""
    with open_keyed_app(tmp_path_factory.mktemp("app"), backend) as made:
        yield made


def ping(app: AppHarness, made: dict[str, Any]) -> str:
    """The id of a new ping, still pending."""
    answer = app.http.post(f"/v1/subscriptions/{made['id']}/ping")
    assert 202 == answer.status_code, answer.text
    return str(answer.json()["id"])


def change(app: AppHarness, made: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """A subscription, changed."""
    answer = app.http.patch(f"/v1/subscriptions/{made['id']}", json=fields)
    assert 200 == answer.status_code, answer.text
    changed: dict[str, Any] = answer.json()
    return changed


# --- other URLs -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_another_url_starts_afresh(app: AppHarness, receiver: Receiver) -> None:
    """A pause that one receiver asked for does not apply to the next; it gets what was pending."""
    made = app.webhooks.subscribe(f"{receiver.url}/later")
    ping(app, made)
    app.worker.run_all()
    paused = app.webhooks.show(made)
    assert (1, True) == (paused["failures"], paused["paused_until"] is not None)
    [delivery] = app.webhooks.deliveries(made)
    assert paused["paused_until"] <= delivery["next_attempt_at"]
    changed = change(app, made, url=f"{receiver.url}/ok")
    assert (0, None, None) == tuple(
        changed[k] for k in ("failures", "failing_since", "paused_until")
    )
    app.worker.run_all()
    [delivery] = app.webhooks.deliveries(made)
    assert ("succeeded", 2) == (delivery["state"], delivery["attempts"])


def test_enabling_sends_what_waits(app: AppHarness, receiver: Receiver) -> None:
    """A pending delivery has no next attempt while disabled, and an immediate one when enabled."""
    made = app.webhooks.subscribe(f"{receiver.url}/retry-after/36000")
    ping(app, made)
    app.worker.run_all()
    change(app, made, enabled=False)
    [delivery] = app.webhooks.deliveries(made)
    assert ("pending", None) == (delivery["state"], delivery["next_attempt_at"])
    app.worker.run_all()
    assert 1 == len(receiver.requests)
    change(app, made, enabled=True)
    app.worker.run_all()
    assert 2 == len(receiver.requests)


@pytest.mark.slow
def test_an_old_receiver_ends_nothing_of_a_new_one(app: AppHarness, receiver: Receiver) -> None:
    """A 410 from the old URL does not disable the subscription; the new URL gets the event."""
    made = app.webhooks.subscribe(f"{receiver.url}/held/410")
    ping(app, made)
    app.worker.run_all(wait=False)
    wait_for(lambda: receiver.at("/held/410"))
    change(app, made, url=f"{receiver.url}/ok")
    receiver.released.set()
    app.worker.run_all()
    shown = app.webhooks.show(made)
    assert (True, None, 0) == (shown["enabled"], shown["disabled_reason"], shown["failures"])
    app.worker.tick()
    time.sleep(1)  # the job that follows is due within a second
    app.worker.run_all()
    [delivery] = app.webhooks.deliveries(made)
    assert ("succeeded", [410, 204]) == (
        delivery["state"],
        [attempt["status"] for attempt in delivery["log"]],
    )
    assert 1 == delivery["attempts"]


def test_what_waits_for_a_disabled_one_is_forgotten(app: AppHarness, receiver: Receiver) -> None:
    """It is kept as long as other deliveries; pending ones of an enabled subscription longer."""
    off, on = (
        app.webhooks.subscribe(f"{receiver.url}/later"),
        app.webhooks.subscribe(f"{receiver.url}/later"),
    )
    for made in (off, on):
        ping(app, made)
    app.worker.run_all()
    change(app, off, enabled=False)
    app.worker.tick()
    assert 1 == len(app.webhooks.deliveries(off))
    with app.services[Database].writing() as session:
        waiting = WebhookDeliveryRow.subscription_id.in_((off["id"], on["id"]))
        session.execute(update(WebhookDeliveryRow).where(waiting).values(due_at=PAST))
        far = datetime.now(UTC) + timedelta(hours=1)
        session.execute(update(SubscriptionRow).values(paused_until=far))
    app.worker.tick()
    assert ([], 1) == (app.webhooks.deliveries(off), len(app.webhooks.deliveries(on)))


def test_secrets_do_not_pile_up(app: AppHarness) -> None:
    """Five previous secrets sign beside the newest; a sixth rotation needs an overlap of zero."""
    made = app.webhooks.subscribe("http://127.0.0.1:9/")
    path = f"/v1/subscriptions/{made['id']}/rotate-secret"
    assert [200] * 5 == [app.http.post(path).status_code for _ in range(5)]
    refused = app.http.post(path)
    assert (409, "conflict") == (refused.status_code, refused.json()["code"])
    assert "overlap_seconds=0" in refused.json()["detail"]
    assert 200 == app.http.post(path, params={"overlap_seconds": 0}).status_code
    assert 200 == app.http.post(path).status_code


# --- this side ------------------------------------------------------------------------------------


def test_a_bug_counts_as_an_attempt(
    app: AppHarness, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bug in an attempt is shown in the log, and retries end."""

    def send(*_: Any) -> None:
        raise OverflowError

    made = app.webhooks.subscribe(f"{receiver.url}/ok")
    ping(app, made)
    monkeypatch.setattr(Sender, "send", send)
    app.worker.run_all()
    [delivery] = app.webhooks.deliveries(made)
    assert 1 == delivery["attempts"]
    [line] = delivery["log"]
    assert (None, "not sent: the service met a bug (OverflowError)") == (
        line["status"],
        line["detail"],
    )


def test_a_worker_without_the_key_sends_nothing(
    app: AppHarness,
    receiver: Receiver,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It leaves deliveries to other processes, spends no attempts, and warns its operator."""
    made = app.webhooks.subscribe(f"{receiver.url}/ok")
    ping(app, made)
    with monkeypatch.context() as broken, caplog.at_level(logging.ERROR):
        keys = Secrets(("A" * 43 + "=",), None)
        broken.setattr(app.services[Secrets], "decrypt", keys.decrypt)
        app.worker.run_all()
        app.worker.tick()
    [delivery] = app.webhooks.deliveries(made)
    assert ("pending", 0, []) == tuple(delivery[k] for k in ("state", "attempts", "log"))
    assert (0, None) == tuple(app.webhooks.show(made)[k] for k in ("failures", "failing_since"))
    said = [record.getMessage() for record in caplog.records if made["id"] in record.getMessage()]
    assert 1 == len(said)
    assert "MODELKIN_ENCRYPTION_KEYS" in said[0]


@pytest.mark.slow
def test_a_service_that_ends_begins_nothing_more(tmp_path: Path, receiver: Receiver) -> None:
    """No attempt starts after those in flight, although more deliveries are due."""
    with open_keyed_app(tmp_path, SQLITE) as app:
        made = app.webhooks.subscribe(f"{receiver.url}/held/204")
        for _ in range(4):
            ping(app, made)
        app.worker.run_all(wait=False)
        wait_for(lambda: len(receiver.requests) == 2)
        sending = [thread for thread in threading.enumerate() if thread.name == THREAD]
    receiver.released.set()
    for thread in sending:
        thread.join()
    assert THREAD not in {thread.name for thread in threading.enumerate()}
    assert 2 == len(receiver.requests)


def test_receivers_write_nothing_into_the_log(
    app: AppHarness, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    """The operator's log shows the kind of the answer, and neither its text nor any URL."""
    with caplog.at_level(logging.DEBUG, logger="app"):
        for tail in ("/status/500/SECRET", "/redirect/https://a.example/SECRET", "/close/SECRET"):
            ping(app, app.webhooks.subscribe(receiver.url + tail))
        app.worker.run_all()
    said = [record.getMessage() for record in caplog.records if "attempt 1" in record.getMessage()]
    assert ["answered 307", "answered 500", "no answer"] == sorted(
        message.rpartition("attempt 1: ")[2] for message in said
    )
    assert not any("sorry" in message or "SECRET" in message for message in caplog.messages)


# --- many -----------------------------------------------------------------------------------------


def steps(session: Reader, ask: Any) -> int:
    """Hundreds of instructions that SQLite takes for a question."""
    connection: Any = session.connection().connection.dbapi_connection
    taken = 0

    def count() -> int:
        nonlocal taken
        taken += 1
        return 0

    connection.set_progress_handler(count, 100)
    try:
        ask()
    finally:
        connection.set_progress_handler(None, 0)
    return taken


@pytest.mark.slow
def test_a_backlog_does_not_slow_queries(tmp_path: Path) -> None:
    """Ten thousand pending deliveries slow neither the choice of the next nor the search for old
    ones, and a subscription with few deliveries still gets its share.
    """
    now = datetime.now(UTC)
    with open_keyed_app(tmp_path, SQLITE) as app:
        crowded, quiet = (app.webhooks.subscribe("http://127.0.0.1:9/") for _ in range(2))
        ping(app, crowded)
        database = app.services[Database]

        def look() -> tuple[int, list[store.Delivery]]:
            with database.reading() as session:
                found: list[store.Delivery] = []
                later = datetime.now(UTC)
                taken = steps(
                    session, lambda: found.extend(store.find_due(session, later, limits=LIMITS))
                )
                return taken + steps(session, lambda: store.any_expired(session, PAST)), found

        few, found = look()
        assert 1 == len(found)
        with database.writing() as session:
            columns = store.find_due(session, datetime.now(UTC), limits=LIMITS)[0]
            row = {name: getattr(columns, name) for name in store.Delivery.__dataclass_fields__}
            rows = [{**row, "id": new_id(now), "event_id": new_id(now)} for _ in range(10_000)]
            session.execute(insert(WebhookDeliveryRow), rows)
        ping(app, quiet)
        many, found = look()
        count = Counter(delivery.subscription_id for delivery in found)
        assert {crowded["id"]: 2, quiet["id"]: 1} == count
        assert many < few + 20, (few, many)


@pytest.mark.slow
def test_a_backlog_of_events_costs_nothing_either(tmp_path: Path) -> None:
    """The events of a model are found as fast with ten thousand others pending."""
    now = datetime.now(UTC)
    with open_keyed_app(tmp_path, SQLITE) as app:
        app.webhooks.subscribe("http://127.0.0.1:9/")
        space = app.create_space("crowded")
        rng = np.random.default_rng(1)
        for name in ("a", "b"):
            app.put_support(space, name, random_support(rng, 10_000, 100))
        database = app.services[Database]
        with database.reading() as session:
            first, second = map(vars_of, session.scalars(select(EventRow).order_by(EventRow.id)))
        event = event_repository.Event(**first)

        def look() -> int:
            with database.writing() as session:

                def compare() -> None:
                    event_repository.is_followed(session, event)
                    event_repository.mark_compared(session, event, 1)
                    event_repository.any_fanned_out(session, PAST)

                return steps(session, compare)

        few = look()
        with database.writing() as session:
            rows = [{**second, "id": new_id(now), "model_id": 10 + n} for n in range(10_000)]
            session.execute(insert(EventRow), rows)
        many = look()
    assert many < few + 20, (few, many)


def vars_of(row: EventRow) -> dict[str, Any]:
    """The columns of an event."""
    return {name: getattr(row, name) for name in event_repository.Event.__dataclass_fields__}


@pytest.mark.slow
def test_nothing_is_lost_when_the_sender_is_killed(backend: Backend, tmp_path: Path) -> None:
    """Every recorded event arrives in spite of kill -9, few of them twice."""
    with receiving() as receiver:
        flags = "--embedded-worker=on", "--job-lease-seconds=2", "--egress-allow=127.0.0.1"
        server = Server(
            tmp_path, *flags, backend=backend, MODELKIN_ENCRYPTION_KEYS="x" * 32
        ).start()
        body = {"url": f"{receiver.url}/ok", "events": ["support.stored"]}
        subscribed = [httpx.post(f"{server.url}/v1/subscriptions", json=body) for _ in range(3)]
        paths = [f"/v1/subscriptions/{made.json()['id']}" for made in subscribed]
        write_log = set[str]()

        def go_on() -> None:
            with checked(httpx.Client(base_url=server.url, timeout=30)) as http:
                for number in range(150):
                    try:
                        write_log.add(http.post(f"{paths[number % 3]}/ping").json()["id"])
                    except httpx.TransportError:
                        return

        pinging = threading.Thread(target=go_on)
        pinging.start()
        wait_for(lambda: len(receiver.requests) >= 20)
        server.kill()
        pinging.join()
        database = Database(server.database_url, timeout=10)
        with database.writing() as session:  # reserved deliveries are due again, 90 s later
            session.execute(
                update(WebhookDeliveryRow)
                .where(WebhookDeliveryRow.due_at.is_not(None))
                .values(due_at=PAST)
            )
        database.close()
        server.start()
        with checked(httpx.Client(base_url=server.url, timeout=30)) as http:
            write_log.add(http.post(f"{paths[0]}/ping").json()["id"])
            wait_for(lambda: write_log <= {r.headers["webhook-id"] for r in receiver.requests})
            wait_for(lambda: not pending(http, paths))
            listed = [d for path in paths for d in deliveries(http, path)]
        times = Counter(request.headers["webhook-id"] for request in receiver.requests)
        assert {each["id"] for each in listed} == times.keys() >= write_log
        assert {("succeeded", 1)} == {(each["state"], each["attempts"]) for each in listed}
        assert sum(times.values()) - len(times) <= 6  # those that were in flight
        assert 0 == server.stop()


def deliveries(http: httpx.Client, path: str, **params: Any) -> list[dict[str, Any]]:
    """Those of a subscription."""
    page = http.get(f"{path}/deliveries", params={"limit": 1000, **params}).json()
    assert page["next_cursor"] is None
    items: list[dict[str, Any]] = page["items"]
    return items


def pending(http: httpx.Client, paths: list[str]) -> bool:
    """Whether anything is still to be sent."""
    return any(deliveries(http, path, state="pending") for path in paths)
