"""Bases that allow no delta: it fails where it was asked for; else the weights stand in for it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.app.hubs.conftest import GOOD, refused
from tests.app.hubs.ingestion.conftest import gptq
from tests.support.app.harness import AppHarness
from tests.support.models.checkpoints import random_tensors, safetensors, sharded
from tests.support.servers.fake_huggingface import Handler, Hub


def test_a_delta_without_a_base(hub: Hub, app: AppHarness) -> None:
    """Where delta was asked for, a base is needed."""
    hub.push("org/a", {"model.safetensors": GOOD})
    state, code, detail = refused(app, hub.url, importance="delta")
    assert ("failed", "invalid_parameter") == (state, code)
    assert "the model declares no base, and its source names none" in detail


def test_a_base_of_another_layout(hub: Hub, app: AppHarness) -> None:
    """Asked for, the delta fails and says where they differ; else the weights stand in for it."""
    wide = safetensors(random_tensors(1, {"decoder.weight": (3, 3)}))
    hub.push("org/base", {"model.safetensors": wide})
    hub.push("org/a", {"model.safetensors": GOOD}, card={"base_model": "org/base"})
    state, code, detail = refused(app, hub.url, importance="delta")
    assert ("failed", "space_mismatch") == (state, code)
    assert "'decoder.weight' has shape [3, 3] in the base and [40, 25] in the model" in detail
    outcome = app.hubs.sync_model(app.hubs.follow(hub.url), "org/a").result
    assert outcome is not None
    assert "weight" == outcome["importance"]
    assert "no delta: its base org/base@" in outcome["notes"][0]
    assert "its base org/base@" in outcome["delta"]["reason"]


def test_a_base_of_another_layout_is_not_downloaded(hub: Hub, app: AppHarness) -> None:
    """The headers of a base show that it does not fit.

    They are a few kilobytes, whatever its size and its number of shards.
    """
    large = random_tensors(1, {"decoder.weight": (1 << 20,), "other": (1 << 20,)})
    hub.push("org/base", sharded(large, 2))
    hub.push("org/whole", {"model.safetensors": safetensors(large)})
    sent: list[int] = []

    def counting(request: Handler) -> bool:
        sent.append(int(request.headers.get("Range", "bytes=0-99999999")[8:]) + 1)
        return False

    hub.on_cdn = counting
    for base in ("org/base", "org/whole"):
        name = f"{base}-tuned"
        hub.push(name, {"model.safetensors": GOOD}, card={"base_model": base})
        sent.clear()
        outcome = app.hubs.sync_model(app.hubs.follow(hub.url), name).result
        assert outcome is not None
        assert ("weight", True) == (outcome["importance"], "another layout" in outcome["notes"][0])
        assert 100_000_000 == sent[0]
        assert sum(sent[1:]) < 1 << 20


def test_a_model_that_is_its_base(hub: Hub, app: AppHarness) -> None:
    """There is no delta where nothing differs."""
    hub.push("org/base", {"model.safetensors": GOOD})
    hub.push("org/a", {"model.safetensors": GOOD}, card={"base_model": "org/base"})
    state, code, detail = refused(app, hub.url, importance="delta")
    assert ("failed", "invalid_importance") == (state, code)
    assert "no weight differs from its base" in detail
    outcome = app.hubs.sync_model(app.hubs.follow(hub.url), "org/a").result
    assert outcome is not None
    assert "weight" == outcome["importance"]


def test_a_base_that_is_not_given(hub: Hub, app: AppHarness) -> None:
    """An unreadable base fails an explicit delta; otherwise it is only a note."""
    hub.push("org/a", {"model.safetensors": GOOD}, card={"base_model": "org/secret"})
    state, code, detail = refused(app, hub.url, importance="delta")
    assert ("failed", "hub_not_found") == (state, code)
    assert "the base of org/a@" in detail
    outcome = app.hubs.sync_model(app.hubs.follow(hub.url), "org/a").result
    assert outcome is not None
    assert "base org/secret is not available" in outcome["notes"][0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("files", "gated", "code"),
    [
        ({"model.safetensors": GOOD}, True, "hub_refused"),
        ({"pytorch_model.bin": b"pickled"}, False, "invalid_checkpoint"),
        ({"model.safetensors": gptq()}, False, "invalid_checkpoint"),
    ],
    ids=["gated", "pickled", "quantised"],
)
def test_a_base_that_is_of_no_use(
    hub: Hub, app: AppHarness, files: dict[str, bytes], gated: bool, code: str
) -> None:
    """A base whose files cannot be had fails a delta that was asked for; else the weights stand in
    for it, until a later sync finds that they can.
    """
    hub.push("org/base", files, gated=gated)
    tuned = safetensors(random_tensors(2))
    hub.push("org/a", {"model.safetensors": tuned}, card={"base_model": "org/base"})
    assert ("failed", code) == refused(app, hub.url, importance="delta")[:2]
    source = app.hubs.follow(hub.url)
    outcome = app.hubs.sync_model(source, "org/a").result
    assert outcome is not None
    assert "weight" == outcome["importance"]
    assert "no delta: base org/base" in outcome["notes"][0]
    hub.push("org/base", {"model.safetensors": GOOD}, gated=False)
    again = app.hubs.sync_model(source, "org/a").result
    assert again is not None
    assert "space" in again["delta"]


CARDS: dict[str, tuple[Any, list[str], tuple[str, ...], str | None]] = {
    "null": (None, ["base_model:org/base"], ("org/base",), None),
    "null in a list": ([None, "org/base"], [], ("org/base",), None),
    "empty list": ([], [], (), "declares no base"),
    "empty": ("", [], (), "declares no base"),
    "blank": ("  ", [], (), "declares no base"),
    "number": (7, [], (), "declares no base"),
    "itself": ("org/itself", [], ("org/itself",), "declares itself as its base"),
    "gated": ("org/locked", [], ("org/locked",), "accept its terms there"),
    "folder": ("./out/checkpoint-500", [], (), "no repository can have this name"),
    "disk": ("C:\\models\\base", [], (), "no repository can have this name"),
}


def test_bases_as_cards_have_them(hub: Hub, app: AppHarness) -> None:
    """What a hub can have is kept, and the reason why there is no difference is true."""
    hub.push("org/base", {"model.safetensors": GOOD})
    hub.push("org/locked", {"model.safetensors": GOOD}, gated=True)
    source, found = app.hubs.follow(hub.url), {}
    for number, (name, (card, tags, _, _)) in enumerate(CARDS.items()):
        weights = {"model.safetensors": safetensors(random_tensors(9 + number))}
        hub.push(f"org/{name}", weights, card={"base_model": card}, tags=tags)
        job = app.hubs.sync_model(source, f"org/{name}")
        assert job.result is not None, job.error
        model = app.hubs.model(f"org/{name}")
        assert model is not None
        found[name] = (model.bases, job.result["delta"].get("reason"))
    assert {name: bases for name, (_, _, bases, _) in CARDS.items()} == {
        name: bases for name, (bases, _) in found.items()
    }
    for name, (_, _, _, why) in CARDS.items():
        assert (why or "") in (found[name][1] or ""), name
        assert (why is None) == (found[name][1] is None), name


def test_the_base_of_a_source_is_none_of_its_own(hub: Hub, app: AppHarness) -> None:
    """The reason says that it is the base, and not that its source names none."""
    hub.push("org/base", {"model.safetensors": GOOD})
    job = app.hubs.sync_model(app.hubs.follow(hub.url, base_model="org/base"), "org/base")
    assert job.result is not None, job.error
    assert "the model is the base that its source names" == job.result["delta"]["reason"]
