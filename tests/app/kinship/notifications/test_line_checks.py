"""``lineage.mismatch`` across layouts: who is told, and what makes a lineage be checked again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from app.anatomy.keeping import AnatomyKeeper
from app.webhooks.outbox import LINEAGE_MISMATCH
from tests.app.kinship.lines.conftest import NEW, OLD, Fingerprints, planted, removed
from tests.app.kinship.notifications.conftest import fresh
from tests.support.app.harness import AppHarness
from tests.support.servers.webhook_receiver import Receiver


@pytest.fixture
def stored(app: AppHarness) -> Iterator[Fingerprints]:
    """No fingerprint yet; anatomies are made at once."""
    app.services[AnatomyKeeper].delay = timedelta(0)
    yield from removed(Fingerprints(app))


@pytest.fixture
def told(app: AppHarness, space: str, receiver: Receiver) -> Any:
    """The data of the notices that a new subscription to all spaces gets."""
    made = app.webhooks.subscribe(f"{receiver.url}/ok", LINEAGE_MISMATCH)
    return lambda: data_of(app, made)


def data_of(app: AppHarness, made: dict[str, Any]) -> list[dict[str, Any]]:
    """The data of all that a subscription got, oldest first, after all jobs are done."""
    app.worker.run_all()
    found = [json.loads(each["payload"])["data"] for each in app.webhooks.deliveries(made)]
    return sorted(found, key=lambda data: data["event"])


@pytest.mark.slow
def test_each_of_the_three_may_come_last(stored: Fingerprints, told: Any) -> None:
    """The model, the base that it declares, or the one that its lines are of."""
    parts: dict[str, tuple[str, dict[str, Any]]] = {
        "made": ("tuned", {"base_models": ("claimed",), "published_at": NEW}),
        "claimed": ("stranger", {"published_at": OLD}),
        "true": ("base", {"published_at": OLD}),
    }
    for count, last in enumerate(parts):
        for name, (of, facts) in sorted(parts.items(), key=lambda part: part[0] == last):
            if name == last:
                assert count == len(told())
            stored.put(name, planted(of), **facts)
        data = told()[count:]
        assert [("made", "claimed", "true", "lines")] == [
            tuple(each[key] for key in ("model", "declared_base", "likely_base", "reason"))
            for each in data
        ]
        assert "/v1/fingerprints/made/lineage" == data[0]["url"]
        for name in parts:
            stored.delete(name)


def test_another_declaration_is_checked(stored: Fingerprints, told: Any) -> None:
    """Though the keys are the same as before."""
    stored.put("claimed", planted("stranger"), published_at=OLD)
    stored.put("true", planted("base"), published_at=OLD)
    stored.put("made", planted("tuned"), base_models=("true",), published_at=NEW)
    assert [] == told()
    stored.put("made", planted("tuned"), base_models=("claimed",), published_at=NEW)
    assert ["made"] == [each["model"] for each in told()]


@pytest.mark.slow
def test_what_is_not_contradicted_is_no_news(stored: Fingerprints, told: Any) -> None:
    """A base that is confirmed, unknown or left open."""
    stored.put("base", planted("base"), published_at=OLD)
    stored.put("confirmed", planted("tuned"), base_models=("base",))
    stored.put("unknown", planted("sibling"), base_models=("gone",))
    stored.put("claimed", planted("stranger"), published_at=OLD)
    stored.put("open", planted("noise 1"), base_models=("claimed",), published_at=NEW)
    assert [] == told()


def test_a_model_of_a_space_is_told_of_in_its_space(
    app: AppHarness, stored: Fingerprints, space: str, receiver: Receiver, told: Any
) -> None:
    """Once, to subscriptions of that space and of all, when its base of another layout comes."""
    rng = np.random.default_rng(3)
    here = app.webhooks.subscribe(f"{receiver.url}/ok", LINEAGE_MISMATCH, space=space)
    other = app.webhooks.subscribe(f"{receiver.url}/ok", LINEAGE_MISMATCH, space="elsewhere")
    for name in ("made", "a", "b", "c"):
        app.put_support(space, name, fresh(rng))
    app.http.patch(f"/v1/spaces/{space}/models/made", json={"base_model": "claimed"})
    stored.put("made", planted("tuned"), base_models=("claimed",), published_at=NEW)
    stored.put("true", planted("base"), published_at=OLD)
    assert [] == told()
    stored.put("claimed", planted("stranger"), published_at=OLD)
    [data] = told()
    assert (space, "made", "claimed", "true", "lines") == tuple(
        data[key] for key in ("space", "model", "declared_base", "likely_base", "reason")
    )
    assert [data] == data_of(app, here)
    assert [] == data_of(app, other)
