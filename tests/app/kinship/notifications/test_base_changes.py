"""Lineages whose declared base cannot be: when they are checked, and that each is an event."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from sqlalchemy import event

from app.webhooks.outbox import LINEAGE_MISMATCH
from tests.app.kinship.notifications.conftest import a_batch, fresh
from tests.support.app.harness import AppHarness
from tests.support.http_space import related
from tests.support.servers.webhook_receiver import Receiver


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


@pytest.mark.slow
def test_a_merge_is_checked_by_any_base(
    app: AppHarness, space: str, receiver: Receiver, rng: np.random.Generator
) -> None:
    """A base that comes late has the merges that declare it checked, and the event names all
    bases, the contradicted one first.
    """
    base = fresh(rng)
    a_batch(app, space, {f"other-{n}": fresh(rng) for n in range(40)} | {"base": base})
    made = app.webhooks.subscribe(f"{receiver.url}/ok", LINEAGE_MISMATCH, space=space)
    app.put_support(space, "merge", related(rng, base, 0.8))
    declared = {"base_models": ["base", "late"], "base_relation": "merge"}
    assert 200 == app.http.patch(f"/v1/spaces/{space}/models/merge", json=declared).status_code
    app.worker.run_all()
    assert [] == app.webhooks.deliveries(made)
    app.put_support(space, "late", fresh(rng))
    app.worker.run_all()
    [delivery] = app.webhooks.deliveries(made)
    data = json.loads(delivery["payload"])["data"]
    assert ("merge", "late", ["base", "late"]) == (
        data["model"],
        data["declared_base"],
        data["declared_bases"],
    )
