"""Syncs at the same time: a family has one space, whichever of its models is stored first."""

from __future__ import annotations

import secrets
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from app.hubs.ingestion.reading import FetchedReading
from app.hubs.records import ImportanceName
from tests.support.app.harness import AppHarness
from tests.support.models.checkpoints import Tensors, random_tensors, safetensors
from tests.support.servers.fake_huggingface import Hub

SHAPES: dict[str, tuple[int, ...]] = {"body.weight": (32, 64), "head.weight": (10, 32)}
BASE = random_tensors(1, SHAPES)


def family() -> dict[str, Tensors]:
    """A base, and a fine-tune with another head; of the weights of a third nothing is theirs."""
    return {
        "acme/classes": BASE | {"head.weight": random_tensors(2, SHAPES)["head.weight"][:7]},
        "acme/vit": BASE,
        "other/lm": random_tensors(3, {"layers.weight": (48, 48)}),
    }


@pytest.mark.parametrize("importance", ["weight", None])
def test_a_family_that_comes_at_once_has_one_space(
    hub: Hub,
    service: AppHarness,
    monkeypatch: pytest.MonkeyPatch,
    importance: ImportanceName | None,
) -> None:
    """Three syncs look for a space before one makes it: the two of a family share one all the same,
    and the stranger has its own.
    """
    space = f"hub-{secrets.token_hex(4)}"
    hub.push("first/of-all", {"m.safetensors": safetensors(random_tensors(9, {"a": (4, 4)}))})
    source = service.hubs.follow(hub.url, space=space, importance=importance)
    assert "succeeded" == service.hubs.sync_model(source, "first/of-all").state
    models = family()
    for name, tensors in models.items():
        card = {"base_model": "acme/vit"} if name == "acme/classes" else {}
        hub.push(name, {"model.safetensors": safetensors(tensors)}, card=card)
    looked, waited, read = threading.Barrier(len(models)), threading.local(), FetchedReading.fetch

    def fetch(self: FetchedReading, *given: Any) -> None:
        if not hasattr(waited, "once"):
            waited.once = looked.wait(60)
        read(self, *given)

    monkeypatch.setattr(FetchedReading, "fetch", fetch)
    jobs = [service.hubs.enqueue(source, name) for name in models]
    with ThreadPoolExecutor(len(jobs)) as threads:
        done = list(threads.map(service.worker.execute, jobs))
    assert ["succeeded"] * len(jobs) == [job.state for job in done], [job.error for job in done]
    spaces = [(job.result or {})["space"] for job in done]
    assert spaces[0] == spaces[1], spaces
    assert spaces[2] not in {space, spaces[0]}
    near = service.http.get(f"/v1/spaces/{spaces[0]}/neighbors", params={"model": "acme/vit"})
    assert ["acme/classes"] == [each["model"] for each in near.json()["items"]]
