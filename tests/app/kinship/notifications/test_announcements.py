"""Events themselves: who receives which, by real requests to a real receiver, on each database."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import numpy as np
import pytest
from sqlalchemy import text
from standardwebhooks import Webhook

from app.infra.db.database import Database
from app.webhooks.outbox import CLUSTERING_COMPLETED
from modelkin.wire import SUPPORT
from tests.app.kinship.notifications.conftest import M, fresh, models_of
from tests.support.app.harness import AppHarness
from tests.support.servers.webhook_receiver import Receiver


def told(receiver: Receiver, path: str, kind: str | None = None) -> list[dict[str, Any]]:
    """The data of the events that a path has received, of one type or all."""
    events = [json.loads(request.body) for request in receiver.at(path)]
    return [event["data"] for event in events if kind in {None, event["type"]}]


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
    """A support stored by a patch is an event like any other."""
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
