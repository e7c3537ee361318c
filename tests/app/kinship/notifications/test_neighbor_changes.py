"""Neighbours that cross a threshold: which changes are events, and of which pair."""

from __future__ import annotations

import json
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from app.webhooks.outbox import NEIGHBORS_CHANGED
from modelkin import Support
from tests.app.kinship.notifications.conftest import M, a_batch, fresh
from tests.support.app.harness import AppHarness
from tests.support.http_space import related, true_similarity
from tests.support.servers.webhook_receiver import Receiver


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
