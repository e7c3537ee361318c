"""Events: what subscribers receive, by real requests to a real receiver, on each database."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from sqlalchemy import delete, event, select, text, update
from standardwebhooks import Webhook

from app.infra.db.database import Database
from app.infra.db.tables.webhooks import EventRow, WebhookDeliveryRow
from app.infra.errors import Unavailable
from app.jobs.service import JobService
from app.kinship.notifications import fan_out
from app.kinship.notifications.neighbor_changes import NeighborChanges
from app.webhooks.outbox import (
    CLUSTERING_COMPLETED,
    LINEAGE_MISMATCH,
    NEIGHBORS_CHANGED,
    SUPPORT_STORED,
)
from modelkin import Support
from modelkin.wire import SUPPORT
from tests.support.app.harness import AppHarness, open_keyed_app
from tests.support.backends import Backend
from tests.support.http_space import random_support, related, true_similarity
from tests.support.servers.webhook_receiver import Receiver, receiving
from workers.scheduler import Scheduler

M = 10_000


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    """The receiver of this file."""
    with receiving() as made:
        yield made


@pytest.fixture(scope="module")
def app(backend: Backend, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AppHarness]:
    """The service of this file, on each database."""
    with open_keyed_app(tmp_path_factory.mktemp("app"), backend) as made:
        yield made


@pytest.fixture
def rng() -> np.random.Generator:
    """A random generator with a fixed seed."""
    return np.random.default_rng(7)


@pytest.fixture
def space(app: AppHarness, request: pytest.FixtureRequest) -> Iterator[str]:
    """A space of the test's own; its subscriptions are deleted afterwards."""
    yield app.create_space(request.node.name.split("[")[0].replace("_", "-")[:90])
    for subscription in app.http.get("/v1/subscriptions").json()["items"]:
        assert 204 == app.http.delete(f"/v1/subscriptions/{subscription['id']}").status_code


def told(receiver: Receiver, path: str, kind: str | None = None) -> list[dict[str, Any]]:
    """The data of the events that a path has received, of one type or all."""
    events = [json.loads(request.body) for request in receiver.at(path)]
    return [event["data"] for event in events if kind in {None, event["type"]}]


def fresh(rng: np.random.Generator) -> Support:
    return random_support(rng, M, 400)


def test_a_stored_support_is_an_event(
    app: AppHarness, receiver: Receiver, space: str, rng: np.random.Generator
) -> None:
    """Once, with a signature that the Standard Webhooks library accepts, and without indices."""
    path = f"/ok/{app.services[Database].url.get_backend_name()}/stored"
    made = app.webhooks.subscribe(f"{receiver.url}{path}", space=space)
    stored = app.put_support(space, "org/a", fresh(rng))
    assert ["events", "deliveries"] == app.worker.run_all()
    [request] = receiver.at(path)
    event = Webhook(made["secret"]).verify(request.body, request.headers)
    assert {"type", "timestamp", "data"} == event.keys()
    assert "support.stored" == event["type"]
    for name in ("space", "model", "revision", "version", "digest", "support_size"):
        assert stored[name] == event["data"][name]
    assert 200 == app.http.get(event["data"]["url"]).status_code
    assert len(request.body) < 1000
    [delivery] = app.webhooks.deliveries(made)
    assert (request.headers["webhook-id"], "succeeded") == (delivery["id"], delivery["state"])
    assert request.body.decode() == delivery["payload"]
    assert [204] == [attempt["status"] for attempt in delivery["log"]]


def test_only_changes_are_events(
    app: AppHarness, receiver: Receiver, space: str, rng: np.random.Generator
) -> None:
    """The same support again, other tags, a signature alone and a refused write send no event."""
    support = fresh(rng)
    app.put_support(space, "a", support)
    made = app.webhooks.subscribe(f"{receiver.url}/ok")
    app.put_support(space, "a", support)
    app.put_support(space, "a", support, tag="red")
    signature = support.signature(256, 1).to_bytes()
    headers = {"Content-Type": "application/vnd.modelkin.signature"}
    path = f"/v1/spaces/{space}/signatures/b"
    assert 201 == app.http.put(path, content=signature, headers=headers).status_code
    refused = app.http.put(
        f"/v1/spaces/{space}/supports/a",
        content=fresh(rng).to_bytes(),
        headers={"Content-Type": SUPPORT, "If-Match": '"0"'},
    )
    assert 412 == refused.status_code
    app.worker.run_all()
    assert [] == app.webhooks.deliveries(made)


def test_a_patch_is_an_event(
    app: AppHarness, receiver: Receiver, space: str, rng: np.random.Generator
) -> None:
    """A support stored by a delta is an event like any other."""
    support = fresh(rng)
    revision = app.put_support(space, "a", support)["revision"]
    made = app.webhooks.subscribe(f"{receiver.url}/ok")
    present = [int(index) for index in support.indices]
    added = next(index for index in range(M) if index not in set(present))
    answer = app.http.patch(
        f"/v1/spaces/{space}/supports/a",
        json={"added": [added], "removed": present[:1]},
        headers={"If-Match": "*"},
    )
    assert 200 == answer.status_code, answer.text
    app.worker.run_all()
    [delivery] = app.webhooks.deliveries(made)
    data = json.loads(delivery["payload"])["data"]
    assert ("support.stored", "succeeded") == (delivery["type"], delivery["state"])
    assert ("a", revision + 1, len(present)) == tuple(
        data[name] for name in ("model", "revision", "support_size")
    )


def test_without_subscribers_nothing_is_written(
    app: AppHarness, space: str, rng: np.random.Generator
) -> None:
    """A write without a matching subscription creates neither an event nor a job."""
    with app.services[Database].reading() as session:
        count = text("SELECT count(*) FROM events")
        before = session.execute(count).scalar_one()
    app.webhooks.subscribe("http://127.0.0.1:9/", CLUSTERING_COMPLETED)
    app.webhooks.subscribe("http://127.0.0.1:9/", space=app.create_space(f"{space}-2"))
    app.put_support(space, "a", fresh(rng))
    assert [] == app.worker.run_all()
    with app.services[Database].reading() as session:
        assert before == session.execute(count).scalar_one()


@pytest.mark.slow
def test_a_batch_is_an_event_for_each_model(
    app: AppHarness, receiver: Receiver, space: str, rng: np.random.Generator
) -> None:
    """Each support of a batch is an event, and each subscription receives each once."""
    backend = app.services[Database].url.get_backend_name()
    both = [app.webhooks.subscribe(f"{receiver.url}/ok/{backend}/batch/{n}") for n in (1, 2)]
    lines = [
        json.dumps({"model": f"m{n}", "support": b64encode(fresh(rng).to_bytes()).decode()})
        for n in range(5)
    ]
    headers = {"Content-Type": "application/jsonl"}
    path = f"/v1/spaces/{space}/batch"
    assert 200 == app.http.post(path, content="\n".join(lines), headers=headers).status_code
    for n in range(5):
        app.put_support(space, f"m{n}", fresh(rng))
    app.worker.run_all()
    for n, made in enumerate(both, 1):
        heard = told(receiver, f"/ok/{backend}/batch/{n}")
        assert len(heard) == len({event["event"] for event in heard})
        assert {f"m{n}" for n in range(5)} == {event["model"] for event in heard}
        assert len(heard) == len(app.webhooks.deliveries(made))


def test_filters_narrow_the_events(
    app: AppHarness, receiver: Receiver, space: str, rng: np.random.Generator
) -> None:
    """By space, model and tag, each alone."""
    elsewhere = app.create_space(f"{space}-2")
    url = f"{receiver.url}/ok"
    heard = {
        name: app.webhooks.subscribe(url, **{name: value})
        for name, value in (("space", space), ("model", "org/a"), ("tag", "red"))
    }
    app.put_support(space, "org/a", fresh(rng))
    app.put_support(elsewhere, "org/a", fresh(rng))
    app.put_support(elsewhere, "b", fresh(rng), tag="red")
    app.worker.run_all()
    found = {
        name: [
            (event["data"]["space"], event["data"]["model"])
            for event in (json.loads(d["payload"]) for d in app.webhooks.deliveries(made))
        ]
        for name, made in heard.items()
    }
    assert {
        "space": [(space, "org/a")],
        "model": [(space, "org/a"), (elsewhere, "org/a")],
        "tag": [(elsewhere, "b")],
    } == found


def test_neighbors_that_cross_the_threshold_are_events(
    app: AppHarness, space: str, receiver: Receiver, rng: np.random.Generator
) -> None:
    """Neighbours gained and lost, with their previous similarities, and no others."""
    base = fresh(rng)
    models = {
        "stays": related(rng, base, 0.9),
        "leaves": related(rng, base, 0.8),
        "comes": fresh(rng),
        "never": fresh(rng),
    }
    for name, support in models.items():
        app.put_support(space, name, support)
    app.put_support(space, "x", base)
    made = app.webhooks.subscribe(
        f"{receiver.url}/ok", NEIGHBORS_CHANGED, space=space, threshold=0.4
    )
    indices = np.union1d(
        np.setdiff1d(base.indices, models["leaves"].indices)[:60],
        np.intersect1d(base.indices, models["stays"].indices)[:250],
    )
    indices = np.union1d(indices, models["comes"].indices[:250])
    indices = np.setdiff1d(indices, np.setdiff1d(models["leaves"].indices, indices))
    after = Support.from_indices(indices.astype(np.uint32), M)
    expected = {}
    for name, support in models.items():
        now, before = true_similarity(after, support), true_similarity(base, support)
        if (now >= 0.4) != (before >= 0.4):
            way = "above" if now >= 0.4 else "below"
            expected[name] = (way, pytest.approx(now, abs=1e-6), pytest.approx(before, abs=1e-6))
    assert {"comes"} <= expected.keys() < models.keys()
    app.put_support(space, "x", after)
    app.worker.run_all()
    [delivery] = app.webhooks.deliveries(made)
    event = json.loads(delivery["payload"])
    data = event["data"]
    assert (NEIGHBORS_CHANGED, "x", 2, 1) == (
        event["type"],
        data["model"],
        data["revision"],
        data["previous_revision"],
    )
    assert expected == {
        item["model"]: (item["crossed"], item["similarity"], item["previous"])
        for item in data["changes"]
    }
    app.put_support(space, "x", base)
    app.worker.run_all()
    back = json.loads(app.webhooks.deliveries(made)[1]["payload"])["data"]["changes"]
    assert {
        name: "below" if way == "above" else "above" for name, (way, *_) in expected.items()
    } == {item["model"]: item["crossed"] for item in back}


def test_changes_that_come_faster_than_their_fan_out(
    app: AppHarness, space: str, receiver: Receiver, rng: np.random.Generator
) -> None:
    """Several uncompared revisions are compared as one with the revision before them."""
    base, near = fresh(rng), fresh(rng)
    app.put_support(space, "y", near)
    app.put_support(space, "x", base)
    made = app.webhooks.subscribe(
        f"{receiver.url}/ok", NEIGHBORS_CHANGED, space=space, threshold=0.5
    )
    for support in (fresh(rng), related(rng, near, 0.9), fresh(rng), related(rng, near, 0.7)):
        app.put_support(space, "x", support)
    app.worker.run_all()
    [delivery] = app.webhooks.deliveries(made)
    data = json.loads(delivery["payload"])["data"]
    assert (5, 1) == (data["revision"], data["previous_revision"])
    assert [("y", "above")] == [(item["model"], item["crossed"]) for item in data["changes"]]


def test_a_space_has_one_job_for_its_events(
    app: AppHarness,
    space: str,
    receiver: Receiver,
    rng: np.random.Generator,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A job whose time slice ends goes on later: none beside it reports the same events."""
    monkeypatch.setattr(fan_out, "TIME_SLICE_S", 0.0)
    made = app.webhooks.subscribe(f"{receiver.url}/ok", SUPPORT_STORED, space=space)
    before = app.http.get("/v1/jobs", params={"kind": "events", "limit": 1000}).json()["items"]
    for number in range(3):
        app.put_support(space, f"m{number}", fresh(rng))
    app.worker.run_all()
    after = app.http.get("/v1/jobs", params={"kind": "events", "limit": 1000}).json()["items"]
    assert 1 == len(after) - len(before)
    assert ["m0", "m1", "m2"] == models_of(app, made)


@pytest.mark.slow
def test_events_of_their_own_come_before_what_is_compared(
    app: AppHarness,
    space: str,
    receiver: Receiver,
    rng: np.random.Generator,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All that wait have their deliveries when the first is compared, and each has one."""
    stored = app.webhooks.subscribe(f"{receiver.url}/ok", SUPPORT_STORED, space=space)
    app.webhooks.subscribe(f"{receiver.url}/ok", NEIGHBORS_CHANGED, space=space, threshold=0.5)
    names = [f"m{number}" for number in range(8)]
    for name in names:
        app.put_support(space, name, fresh(rng))
    whole = NeighborChanges.changes
    seen: list[str] = []

    def compared(self: NeighborChanges, *arguments: Any) -> Any:
        if not seen:
            with app.services[Database].writing() as session:
                body = WebhookDeliveryRow.subscription_id == stored["id"]
                found = session.scalars(select(WebhookDeliveryRow.body).where(body)).all()
                seen.extend(json.loads(one)["data"]["model"] for one in found)
                session.execute(delete(WebhookDeliveryRow).where(body))  # as a low quota does
        return whole(self, *arguments)

    monkeypatch.setattr(NeighborChanges, "changes", compared)
    app.worker.run_all()
    assert names == sorted(seen)
    assert [] == app.webhooks.deliveries(stored)
    with app.services[Database].reading() as reader:
        assert reader.scalar(select(EventRow.id).where(EventRow.fanned_out.is_(False))) is None


def a_batch(app: AppHarness, space: str, supports: dict[str, Support]) -> None:
    """Store them all in one request."""
    lines = [
        json.dumps({"model": name, "support": b64encode(support.to_bytes()).decode()})
        for name, support in supports.items()
    ]
    headers = {"Content-Type": "application/jsonl"}
    path = f"/v1/spaces/{space}/batch"
    assert 200 == app.http.post(path, content="\n".join(lines), headers=headers).status_code


def span(start: int, stop: int) -> Support:
    return Support.from_indices(np.arange(start, stop, dtype=np.uint32), M)


@pytest.mark.slow
def test_a_pair_that_crosses_because_both_move_is_reported_once(
    app: AppHarness, space: str, receiver: Receiver
) -> None:
    """Where both models move, the first change is compared with the other model's earlier support.

    So the crossing is reported once, whether the changes are fanned out together or not.
    """
    after = {"a": span(150, 550), "b": span(100, 500)}
    for way in ("batch", "between", "after"):
        where = app.create_space(f"{space}-{way}")
        app.put_support(where, "a", span(0, 400))
        app.put_support(where, "b", span(280, 680))
        made = app.webhooks.subscribe(
            f"{receiver.url}/ok", NEIGHBORS_CHANGED, space=where, threshold=0.5
        )
        if way == "batch":
            a_batch(app, where, after)
        else:
            for name, support in after.items():
                app.put_support(where, name, support)
                if way == "between":
                    app.worker.run_all()
        app.worker.run_all()
        [delivery] = app.webhooks.deliveries(made)
        data = json.loads(delivery["payload"])["data"]
        [item] = data["changes"]
        assert ("a", "b", "above", 0.675, 0.3) == (
            data["model"],
            *(item[name] for name in ("model", "crossed", "similarity", "previous")),
        )


@pytest.mark.slow
def test_the_events_of_a_pair_are_its_history(
    app: AppHarness, space: str, receiver: Receiver, rng: np.random.Generator
) -> None:
    """In any order of changes and fan-outs the events of a pair alternate between above and below.

    The last event shows the present state.
    """
    made = app.webhooks.subscribe(
        f"{receiver.url}/ok", NEIGHBORS_CHANGED, space=space, threshold=0.5
    )
    now: dict[str, Support] = {}
    for _ in range(12):
        moved = rng.choice(list("abcde"), rng.integers(1, 4), replace=False)
        supports = {
            str(name): span(at, at + 400) for name in moved for at in [int(rng.integers(600))]
        }
        now |= supports
        if rng.random() < 0.5:
            a_batch(app, space, supports)
        else:
            for name, support in supports.items():
                app.put_support(space, name, support)
        if rng.random() < 0.5:
            app.worker.run_all()
    app.worker.run_all()
    near: set[frozenset[str]] = set()
    for delivery in app.webhooks.deliveries(made):
        data = json.loads(delivery["payload"])["data"]
        for item in data["changes"]:
            pair = frozenset({data["model"], item["model"]})
            assert (item["crossed"] == "above") is (pair not in near)
            near ^= {pair}
    assert near == {
        frozenset({a, b}) for a, b in combinations(now, 2) if true_similarity(now[a], now[b]) >= 0.5
    }


def test_a_combined_change_reaches_every_matching_subscription(
    app: AppHarness, space: str, receiver: Receiver, rng: np.random.Generator
) -> None:
    """Combined changes reach each subscription that matches any of them, by its tags then."""
    base = fresh(rng)
    app.put_support(space, "y", base)
    fields = {"space": space, "threshold": 0.5}
    red, blue, green = (
        app.webhooks.subscribe(f"{receiver.url}/ok", NEIGHBORS_CHANGED, tag=tag, **fields)
        for tag in ("red", "blue", "green")
    )
    app.put_support(space, "x", fresh(rng), tag="red")
    app.put_support(space, "x", related(rng, base, 0.9), tag="blue")
    app.http.patch(f"/v1/spaces/{space}/models/x", json={"tags": ["green"]})
    app.worker.run_all()
    assert [1, 1, 0] == [len(app.webhooks.deliveries(made)) for made in (red, blue, green)]


def changes_of(app: AppHarness, made: dict[str, Any]) -> list[tuple[str, str, str, str | None]]:
    """Who changed, beside whom, which way and with which declared relation, of each delivery."""
    found = [json.loads(each["payload"])["data"] for each in app.webhooks.deliveries(made)]
    return [
        (data["model"], item["model"], item["crossed"], item["relation"])
        for data in found
        for item in data["changes"]
    ]


@pytest.mark.slow
def test_a_watched_model_is_either_side_of_a_pair(
    app: AppHarness, space: str, receiver: Receiver, rng: np.random.Generator
) -> None:
    """A filter by model or tag matches a pair whichever of the two changed, and no other pair."""
    base = fresh(rng)
    app.put_support(space, "acme/base", base, tag="watched")
    app.put_support(space, "acme/other", related(rng, base, 0.9))
    url = f"{receiver.url}/ok"
    one = app.webhooks.subscribe(url, NEIGHBORS_CHANGED, space=space, model="acme/base")
    tagged = app.webhooks.subscribe(url, NEIGHBORS_CHANGED, space=space, tag="watched")
    both = app.webhooks.subscribe(
        url, NEIGHBORS_CHANGED, space=space, model="acme/other", tag="watched"
    )
    absent = app.webhooks.subscribe(url, NEIGHBORS_CHANGED, space=space, model="acme/absent")
    everything = app.webhooks.subscribe(url, NEIGHBORS_CHANGED, space=space)
    app.put_support(space, "thief/mine", related(rng, base, 0.9))
    app.put_support(space, "stranger", fresh(rng))
    app.worker.run_all()
    near = [("thief/mine", "acme/base", "above", None)]
    assert near == changes_of(app, one) == changes_of(app, tagged)
    assert {"acme/base", "acme/other"} == {other for _, other, _, _ in changes_of(app, everything)}
    assert [] == changes_of(app, both) == changes_of(app, absent)
    app.put_support(space, "acme/base", fresh(rng))
    app.worker.run_all()
    left = {("acme/base", other, "below", None) for other in ("acme/other", "thief/mine")}
    assert left == {*changes_of(app, one)} - {*near} == {*changes_of(app, tagged)} - {*near}


@pytest.mark.slow
def test_changes_name_the_declared_relation(
    app: AppHarness, space: str, receiver: Receiver, rng: np.random.Generator
) -> None:
    """Base, derivative and sibling are named from the side of the changed model; a copy is not."""
    base = fresh(rng)
    app.put_support(space, "base", base)
    made = app.webhooks.subscribe(f"{receiver.url}/ok", NEIGHBORS_CHANGED, space=space)
    for name in ("tuned", "brother"):
        app.put_support(space, name, fresh(rng))
        path = f"/v1/spaces/{space}/models/{name}"
        assert 200 == app.http.patch(path, json={"base_model": "base"}).status_code
        app.put_support(space, name, related(rng, base, 0.9))
    app.put_support(space, "copy", related(rng, base, 0.9))
    app.worker.run_all()
    assert {
        ("tuned", "base", "above", "base"),
        ("brother", "base", "above", "base"),
        ("brother", "tuned", "above", "sibling"),
        *(("copy", name, "above", None) for name in ("base", "tuned", "brother")),
    } == {*changes_of(app, made)}
    for support in (fresh(rng), base):
        app.put_support(space, "base", support)
        app.worker.run_all()
    assert ("base", "tuned", "below", "derivative") in changes_of(app, made)


def test_tags_are_those_of_the_moment(
    app: AppHarness, space: str, receiver: Receiver, rng: np.random.Generator
) -> None:
    """The name and tags at the time of the change decide who receives it, not those at fan-out."""
    red, blue = (
        app.webhooks.subscribe(f"{receiver.url}/ok", space=space, tag=tag)
        for tag in ("red", "blue")
    )
    app.put_support(space, "a", fresh(rng), tag="red")
    app.http.patch(f"/v1/spaces/{space}/models/a", json={"tags": ["blue"]})
    app.put_support(space, "b", fresh(rng), tag="red")
    assert 204 == app.http.delete(f"/v1/spaces/{space}/models/b").status_code
    app.worker.run_all()
    assert (["a", "b"], []) == (models_of(app, red), models_of(app, blue))


def models_of(app: AppHarness, made: dict[str, Any]) -> list[str]:
    """The models that a subscription was notified about."""
    return sorted(json.loads(d["payload"])["data"]["model"] for d in app.webhooks.deliveries(made))


@pytest.mark.slow
def test_a_store_that_is_away_for_hours_delays_and_loses_nothing(
    app: AppHarness,
    space: str,
    receiver: Receiver,
    rng: np.random.Generator,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Known events are sent at once; those that need the store follow when it is back."""
    base = fresh(rng)
    app.put_support(space, "y", base)
    app.put_support(space, "x", fresh(rng))
    stored = app.webhooks.subscribe(f"{receiver.url}/ok", space=space)
    near = app.webhooks.subscribe(
        f"{receiver.url}/ok", NEIGHBORS_CHANGED, space=space, threshold=0.5
    )
    app.put_support(space, "x", related(rng, base, 0.9))
    app.put_support(space, "z", fresh(rng))
    whole = NeighborChanges.changes
    tries = []

    def away(self: NeighborChanges, space: Any, model: Any, *rest: Any) -> Any:
        if model.name != "x":
            return whole(self, space, model, *rest)
        tries.append(model.name)
        raise Unavailable("the folder is away")

    monkeypatch.setattr(NeighborChanges, "changes", away)
    schedule = Scheduler(app.services[Database], app.services[JobService])
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    app.worker.run_all()
    assert ["x", "z"] == models_of(app, stored)
    for hours in range(1, 20):
        with app.services[Database].writing() as session:
            earlier = datetime.now(UTC) - timedelta(hours=hours)
            waiting = update(EventRow).where(EventRow.fanned_out.is_(False))
            session.execute(waiting.values(created_at=earlier, due_at=earlier))
        for _ in range(2):  # the second time it is not due
            tomorrow += timedelta(seconds=10)
            schedule.tick(tomorrow)
            app.worker.run_all()
        assert hours + 1 == len(tries)
    assert [] == app.webhooks.deliveries(near)
    monkeypatch.undo()
    with app.services[Database].writing() as session:
        session.execute(update(EventRow).values(due_at=None))
    schedule.tick(tomorrow + timedelta(seconds=10))
    app.worker.run_all()
    assert (["x"], ["x", "z"]) == (models_of(app, near), models_of(app, stored))
    with app.services[Database].reading() as reader:
        assert reader.scalar(select(EventRow.id).where(EventRow.fanned_out.is_(False))) is None


def test_without_listeners_no_lineage_is_asked_after(
    app: AppHarness, space: str, receiver: Receiver, rng: np.random.Generator
) -> None:
    """The query for a later event of the model runs only where its lineage is checked."""
    asked: list[str] = []

    def listen(*args: Any) -> None:
        asked.append(args[2])

    app.webhooks.subscribe(f"{receiver.url}/ok", space=space)
    app.put_support(space, "a", fresh(rng))
    with app.database.reading() as session:
        engine = session.get_bind()
    event.listen(engine, "before_cursor_execute", listen)
    try:
        app.worker.run_all()
    finally:
        event.remove(engine, "before_cursor_execute", listen)
    assert any("FROM events" in one for one in asked)
    assert not [one for one in asked if "FROM events" in one and "events.id >" in one]


def test_a_clustering_is_an_event(
    app: AppHarness, space: str, receiver: Receiver, rng: np.random.Generator
) -> None:
    """With its number, its clusters and its URL."""
    for n in range(4):
        app.put_support(space, f"m{n}", fresh(rng))
    made = app.webhooks.subscribe(f"{receiver.url}/ok", CLUSTERING_COMPLETED, space=space)
    asked = {"algorithm": "agglomerative", "n_clusters": 2}
    assert 202 == app.http.post(f"/v1/spaces/{space}/clusterings", json=asked).status_code
    assert ["clustering", "events", "deliveries"] == app.worker.run_all()
    [delivery] = app.webhooks.deliveries(made)
    data = json.loads(delivery["payload"])["data"]
    stored = app.http.get(data["url"]).json()
    assert (stored["id"], stored["number"], 4, 2) == (
        data["clustering"],
        data["number"],
        data["models"],
        data["clusters"],
    )


@pytest.mark.slow
def test_a_mismatched_lineage_is_an_event(
    app: AppHarness, space: str, receiver: Receiver, rng: np.random.Generator
) -> None:
    """An impossible declared base is an event when it is declared, and with each support.

    A plausible base is not.
    """
    bases = [fresh(rng), fresh(rng)]
    others = {f"other-{n}": fresh(rng) for n in range(40)}
    a_batch(app, space, others | {f"base-{n}": base for n, base in enumerate(bases)})
    made = app.webhooks.subscribe(f"{receiver.url}/ok", LINEAGE_MISMATCH, space=space)
    app.put_support(space, "child", related(rng, bases[0], 0.8))
    for named in ("base-0", "base-1"):
        answer = app.http.patch(f"/v1/spaces/{space}/models/child", json={"base_model": named})
        assert 200 == answer.status_code
        app.worker.run_all()
    [delivery] = app.webhooks.deliveries(made)
    data = json.loads(delivery["payload"])["data"]
    lineage = app.http.get(data["url"]).json()
    assert "mismatch" == lineage["verdict"]
    assert ("child", "base-1", "base-0", lineage["summary"]) == (
        data["model"],
        data["declared_base"],
        data["likely_base"],
        data["summary"],
    )
    app.put_support(space, "child", related(rng, bases[0], 0.7))
    app.worker.run_all()
    assert 2 == len(app.webhooks.deliveries(made))


@pytest.mark.slow
def test_a_base_that_comes_or_changes_is_checked(
    app: AppHarness, space: str, receiver: Receiver, rng: np.random.Generator
) -> None:
    """A stranger that comes under the name of a declared base, or replaces it, alerts about the
    models that declare it: once where both are new.
    """
    made = app.webhooks.subscribe(f"{receiver.url}/ok", LINEAGE_MISMATCH, space=space)
    base = fresh(rng)
    a_batch(app, space, {f"other-{n}": fresh(rng) for n in range(40)})
    for name in ("child", "sister"):
        app.put_support(space, name, related(rng, base, 0.8))
    path = f"/v1/spaces/{space}/models/child"
    assert 200 == app.http.patch(path, json={"base_model": "late"}).status_code
    app.worker.run_all()
    assert [] == app.webhooks.deliveries(made)

    app.put_support(space, "late", fresh(rng))
    app.worker.run_all()
    [delivery] = app.webhooks.deliveries(made)
    assert "child" == delivery["model"]
    page = app.http.get(f"/subscriptions/{made['id']}").text
    assert '<div class="small quiet">child</div>' in page
    data = json.loads(delivery["payload"])["data"]
    assert ("child", "late") == (data["model"], data["declared_base"])

    app.put_support(space, "late", fresh(rng))
    app.worker.run_all()
    assert 2 == len(app.webhooks.deliveries(made))

    app.put_support(space, "child", related(rng, base, 0.7))
    app.put_support(space, "late", fresh(rng))
    app.worker.run_all()
    assert 3 == len(app.webhooks.deliveries(made))


def test_events_are_not_lost_with_their_worker(
    app: AppHarness, space: str, receiver: Receiver, rng: np.random.Generator
) -> None:
    """Committed events are sent although all their jobs were cancelled."""
    made = app.webhooks.subscribe(f"{receiver.url}/ok", space=space)
    app.put_support(space, "a", fresh(rng))
    for job in app.http.get("/v1/jobs?state=queued&kind=events").json()["items"]:
        assert 202 == app.http.post(f"/v1/jobs/{job['id']}/cancel").status_code
    assert [] == app.worker.run_all()
    assert [] == app.webhooks.deliveries(made)
    app.worker.age_events()
    assert "deliveries" in app.worker.tick()
    assert ["a"] == [
        json.loads(d["payload"])["data"]["model"] for d in app.webhooks.deliveries(made)
    ]
    assert ["succeeded"] == [delivery["state"] for delivery in app.webhooks.deliveries(made)]
